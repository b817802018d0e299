"""Clusters of tokens over the time of a run."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _checks as checks
from .._types import is_traced
from ..measures.cloud import PointCloud
from .clusters import box_diameter, clusters_at

SCALES = ("so far", "now", "largest")


def token_run(run: Any, asker: str) -> Any:
    """`run`, if it is a finished run of tokens."""
    if not isinstance(getattr(getattr(run, "system", None), "mu", None), PointCloud):
        checks.refuse(
            f"{asker} takes a run of tokens",
            got=f"a run of a {type(run.system.mu).__name__}" if hasattr(run, "system") else checks.described(run),
            expected="mf.flow(field, tokens, t1) with a PointCloud",
            remedy="flow tokens: mf.to_cloud(measure, 1000, key=key) draws them",
        )
    if is_traced(run.saved, run.times) or run.times.ndim != 1:
        checks.refuse(
            f"{asker} looks at a finished run",
            got="a traced run, or a batch of runs",
            expected="one run outside jit, vmap and grad",
            remedy="return the run from the transformed function, and take one of a batch with jax.tree.map",
        )
    return run


@dataclass(frozen=True, eq=False)
class ClusterHistory:
    """Clusters at the save times of a run.

    - `times`, and `count`, the number of clusters then, shape `(T,)`;
    - `labels`, the cluster of each token at each time, shape `(T, n)`, numbered by first token (-1: zero weight);
    - `tolerance`, the distance at which tokens are linked, shape `(T,)`;
    - `since`, for each cluster of the last time, the save time since when its members have been together and alone;
      `settled`, the time since when all of them have: the partition has not changed from then on.

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    history = mf.clusters_along(mf.flow(mf.Softmax(I, I, -I), tokens, t1=20.0), tolerance=0.2)
    assert history.labels.shape == (len(history.times), 3)
    assert history.since.tolist() == [history.settled]  # one cluster at the end
    ```

    MATH g.
    """

    times: np.ndarray
    count: np.ndarray
    labels: np.ndarray
    tolerance: np.ndarray
    since: np.ndarray

    @property
    def settled(self) -> float:
        """The time since when the partition is that of the end, a float."""
        return float(self.since.max())

    def __str__(self) -> str:
        number = int(self.count[-1])
        oldest = f", the oldest since t = {self.since.min():.4g}" if self.since.min() < self.settled else ""
        return (
            f"{number} cluster{'s' * (number != 1)} since t = {self.settled:.4g}, at t = {self.times[-1]:.4g}{oldest}"
        )

    __repr__ = __str__

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """The number of clusters over time, as matplotlib axes; options as for `plot_clusters`."""
        from ..plots.clusters import plot_clusters

        return plot_clusters(self, ax=ax, **options)


def clusters_along(run: Any, tolerance: Any = 0.01, scale: str = "so far") -> ClusterHistory:
    r"""Single-linkage clusters at each save time of a run of tokens, in the run's frame, and how long they have lasted.

    Tokens with $|x_i-x_j|\le\texttt{tolerance}\cdot D$ are linked, where the diameter $D$ (of the bounding box, as in
    `mf.clusters`) is

    - `scale="so far"`: the largest until that time. A cloud that expands is measured by its present size, one that
      collapses by the size that it had: tokens that meet in one point end as one cluster;
    - `scale="now"`: the present one, whatever the cloud was before, as `mf.clusters` and `run.clusters()` have it. It
      sees the shape of a cloud that shrinks to a point, and never that point;
    - `scale="largest"`: the largest of the whole run, one distance for all times.

    Times at which the tokens are beyond the floating-point range are left out.

    **Returns:** a `ClusterHistory`.

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    history = mf.clusters_along(mf.flow(mf.Softmax(I, I, -I), tokens, t1=20.0), tolerance=0.2)
    assert history.count[0] == 3 and history.count[-1] == 1
    ```

    MATH g.
    """
    tolerance = float(checks.positive(tolerance, "tolerance", "a fraction of the diameter, e.g. 0.01"))
    checks.one_of(scale, "scale", SCALES)
    run = token_run(run, "clusters_along")
    points, weights = np.asarray(run.points, float), np.asarray(run.system.mu.weights, float)
    rows = np.flatnonzero(np.isfinite(points).all(axis=(1, 2)))
    points, times = points[rows], np.asarray(run.times)[rows]
    diameters = np.array([box_diameter(x[weights > 0]) for x in points])
    if scale == "so far":
        diameters = np.maximum.accumulate(diameters)
    elif scale == "largest":
        diameters = np.full_like(diameters, diameters.max())
    found = [clusters_at(x, weights, tolerance * size) for x, size in zip(points, diameters, strict=True)]
    labels = np.stack([clusters.labels for clusters in found])
    count = np.array([clusters.count for clusters in found])
    since = np.array([_since(times, labels, number) for number in range(count[-1])])
    return ClusterHistory(times, count, labels, np.array([clusters.tolerance for clusters in found]), since)


def _since(times: np.ndarray, labels: np.ndarray, number: int) -> float:
    """The time since when the members of the last cluster `number` are together and alone."""
    members = labels[-1] == number
    same = labels == labels[:, [int(members.argmax())]]
    changed = np.flatnonzero((same != members[None]).any(axis=1))
    return float(times[changed[-1] + 1 if changed.size else 0])
