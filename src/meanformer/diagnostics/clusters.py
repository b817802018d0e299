"""Clusters of tokens."""

from typing import NamedTuple

import numpy as np

from .. import _checks as checks
from .._scale import norm, unit
from ..display.card import Html, array, card, number, shown, table
from ..measures.cloud import PointCloud

# Pairs per token up to which they are simply listed.
FEW_PAIRS = 50
# Of more clusters a notebook shows the largest.
MOST_SHOWN = 8


class Clusters(NamedTuple):
    """`count` clusters; the cluster `labels[i]` of each token, shape `(n,)` (-1: zero weight); `centres`, shape
    `(count, d)`, and `weights`, shape `(count,)`, of the clusters; and the distance `tolerance` at which tokens are
    linked.
    """

    count: int
    labels: np.ndarray
    centres: np.ndarray
    weights: np.ndarray
    tolerance: float

    @shown
    def _repr_html_(self) -> Html:
        order = np.argsort(-self.weights)[:MOST_SHOWN]
        tokens = [int((self.labels == k).sum()) for k in order]
        rows = [
            (k, count, number(self.weights[k]), array(self.centres[k]))
            for k, count in zip(order.tolist(), tokens, strict=True)
        ]
        few = "" if self.count <= MOST_SHOWN else f", the {MOST_SHOWN} largest"
        title = f"{self.count} {'cluster' if self.count == 1 else 'clusters'}{few}"
        return card(title, [], formula=table(("label", "tokens", "weight", "centre"), rows))


def clusters(mu: PointCloud, tolerance: float = 0.01) -> Clusters:
    r"""Single-linkage clusters of tokens: connected components of the graph

    $$|x_i-x_j|\le\delta,\qquad\delta=\text{tolerance}\times\text{the diameter of the bounding box}.$$

    Deterministic and independent of the order of the tokens; tokens of zero weight belong to no cluster. A cloud that
    is one point up to rounding is one cluster. Memory is linear in the number of tokens, however tight the clusters
    are.

    **Arguments:** a `PointCloud` of points `(n, d)`, outside of `jit`; `tolerance` $>0$.

    **Returns:** a tuple: `count`; `labels`, shape `(n,)`, -1 for zero weight; `centres`, shape `(count, d)`; `weights`
    of the clusters, shape `(count,)`; and `tolerance`, the $\delta$ that was used.

    ```python
    found = mf.clusters(mf.PointCloud([[0.0, 0.0], [0.001, 0.0], [1.0, 1.0]]))
    assert found.count == 2 and found.labels.tolist() == [0, 0, 1]
    assert np.allclose(found.weights, [2 / 3, 1 / 3])
    ```

    MATH g.
    """
    tolerance = float(checks.positive(tolerance, "tolerance", "a fraction of the diameter, e.g. 0.01"))
    if not isinstance(mu, PointCloud) or mu.points.ndim != 2 or not checks.known(mu.points):
        checks.refuse(
            "clusters are those of one known PointCloud",
            got=f"points of shape {mu.points.shape}" if isinstance(mu, PointCloud) else checks.described(mu),
            expected="a PointCloud with points of shape (n, d), outside jit",
            remedy="wrap points in mf.PointCloud; of a run take run.final or run.states[k]",
        )
    points, weights = np.asarray(mu.points, float), np.asarray(mu.weights, float)
    within = box_diameter(points[weights > 0], tolerance)
    return clusters_at(points, weights, checks.representable(within, "tolerance times the diameter"))


def box_diameter(points: np.ndarray, share: float = 1.0) -> float:
    """The diameter of the bounding box of `points`, shape (n, d), or a share of it."""
    size = unit(points)
    with np.errstate(over="ignore"):  # the diameter may be infinite where the points are not
        return float(share * norm(np.ptp(points / size, axis=0)) * size)


def clusters_at(points: np.ndarray, weights: np.ndarray, delta: float) -> Clusters:
    """Single-linkage clusters at the distance `delta`."""
    seen = np.flatnonzero(weights > 0)
    points = points[seen]
    # The rounding of the coordinates themselves is no distance.
    delta = max(delta, 1e-12 * float(np.abs(points).max(initial=0.0)))
    # In units of the points, because distances are squared. Beyond their diameter one distance is like another.
    size = float(unit(points))
    points = points / size
    near = min(delta / 8, size * points.shape[1]) / size * 8
    count, component = _linked(points, near) if near > 0 else (1, np.zeros(len(points), int))
    labels = np.full(len(weights), -1)
    labels[seen] = component
    masses = np.bincount(component, weights[seen], minlength=count)
    centres = [np.bincount(component, weights[seen] * coordinate, minlength=count) for coordinate in points.T]
    return Clusters(count, labels, np.stack(centres, 1) / masses[:, None] * size, masses, delta)


def _linked(points: np.ndarray, delta: float) -> tuple[int, np.ndarray]:
    """Connected components at distance `delta`: how many, and the number of each point's."""
    from scipy.spatial import KDTree  # imported here: every run knows of clusters, and few are asked for them

    tree = KDTree(points)
    if tree.count_neighbors(tree, delta) <= FEW_PAIRS * len(points):
        return _components(tree.query_pairs(delta, output_type="ndarray"), np.arange(len(points)))
    return _linked_by_cells(points, delta)


def _linked_by_cells(points: np.ndarray, delta: float) -> tuple[int, np.ndarray]:
    """The same, without the many pairs inside a tight cluster.

    Points of a cell of side delta / sqrt(d) are all linked, so only cells must be linked to each other: two cells by
    their closest points.
    """
    from scipy.spatial import KDTree

    corner = np.floor((points - points.min(axis=0)) * (np.sqrt(points.shape[1]) / delta * (1 + 1e-9)))
    _, cell = np.unique(corner, axis=0, return_inverse=True)
    cell = cell.ravel()
    members = np.split(np.argsort(cell, kind="stable"), np.cumsum(np.bincount(cell))[:-1])
    trees = {number: KDTree(points[m]) for number, m in enumerate(members)}
    # Any point of a cell is within delta of all the others, so cells can only touch if two such points are near.
    near = KDTree(points[[m[0] for m in members]]).query_pairs(3 * delta, output_type="ndarray")
    links = []
    for a, b in near.tolist():
        few, many = (a, b) if len(members[a]) <= len(members[b]) else (b, a)
        distances, _ = trees[many].query(points[members[few]], distance_upper_bound=np.nextafter(delta, np.inf))
        if distances.min() <= delta:
            links.append((a, b))
    return _components(np.array(links, int).reshape(-1, 2), cell)


def _components(links: np.ndarray, node: np.ndarray) -> tuple[int, np.ndarray]:
    """Components of the graph of `links`, for points that sit at its nodes, numbered by first appearance."""
    size = int(node.max()) + 1
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    graph = coo_matrix((np.ones(len(links), bool), (links[:, 0], links[:, 1])), shape=(size, size))
    count, component = connected_components(graph, directed=False)
    _, start, label = np.unique(component[node], return_index=True, return_inverse=True)
    return int(count), np.argsort(np.argsort(start))[label.ravel()]
