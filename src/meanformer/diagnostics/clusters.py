"""Clusters of tokens."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from .. import _checks as checks
from ..measures.cloud import PointCloud


class Clusters(NamedTuple):
    """`count` clusters; the cluster `labels[i]` of each token (-1: zero weight); `centres` and `weights` of the
    clusters.
    """

    count: int
    labels: np.ndarray
    centres: np.ndarray
    weights: np.ndarray
    tolerance: float


def clusters(mu: PointCloud, tolerance: float = 0.01) -> Clusters:
    r"""Single-linkage clusters: connected components of the graph $|x_i-x_j|\le\delta$ (MATH g).

    $\delta$ is `tolerance` times the diameter of the bounding box of the tokens. Deterministic and independent of
    the order of the tokens; tokens of zero weight belong to no cluster. A cloud that is one point up to rounding is
    one cluster.
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
    seen = np.flatnonzero(weights > 0)
    points = points[seen]
    diameter = float(np.linalg.norm(np.ptp(points, axis=0)))
    # The rounding of the coordinates themselves is no distance.
    delta = max(tolerance * diameter, 1e-12 * float(np.abs(points).max(initial=0.0)))
    pairs = KDTree(points).query_pairs(delta, output_type="ndarray")
    graph = coo_matrix((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), shape=(len(points),) * 2)
    count, component = connected_components(graph, directed=False)
    labels = np.full(mu.n, -1)
    labels[seen] = component
    masses = np.bincount(component, weights[seen], minlength=count)
    centres = (
        np.stack([np.bincount(component, weights[seen] * c, minlength=count) for c in points.T], 1) / masses[:, None]
    )
    return Clusters(int(count), labels, centres, masses, delta)
