"""Clusters of known configurations."""

import numpy as np
import pytest

import meanformer as mf

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
RNG = np.random.default_rng(70)


def around_corners(n: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    owner = np.concatenate([np.arange(3), RNG.integers(0, 3, size=n - 3)])
    return CORNERS[owner] + spread * RNG.uniform(-1, 1, size=(n, 2)), owner


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(((a[:, None] == a[None, :]) == (b[:, None] == b[None, :])).all())


def test_tokens_around_three_corners() -> None:
    points, owner = around_corners(30, 1e-3)
    w = RNG.uniform(0.1, 1, size=30)
    w /= w.sum()
    found = mf.clusters(mf.PointCloud(points, w))
    assert found.count == 3 and same_partition(found.labels, owner)
    for c in range(3):
        mine = found.labels == c
        np.testing.assert_allclose(found.weights[c], w[mine].sum(), rtol=1e-14)
        np.testing.assert_allclose(found.centres[c], w[mine] @ points[mine] / w[mine].sum(), rtol=1e-12)
    np.testing.assert_allclose(found.weights.sum(), 1)


def test_order_of_tokens_does_not_matter() -> None:
    points, _ = around_corners(30, 0.2)
    order = RNG.permutation(30)
    a = mf.clusters(mf.PointCloud(points), 0.05)
    b = mf.clusters(mf.PointCloud(points[order]), 0.05)
    assert 1 < a.count == b.count < 30
    assert same_partition(a.labels[order], b.labels)


def test_a_chain_is_one_cluster_and_its_gap_decides() -> None:
    # Single linkage: neighbours at 1/10 of the diameter join at tolerances above 1/10, not below.
    chain = mf.PointCloud(np.linspace(0, 1, 11)[:, None])
    assert mf.clusters(chain, 0.1001).count == 1
    assert mf.clusters(chain, 0.0999).count == 11
    # Relative to the diameter: the scale does not matter.
    assert mf.clusters(chain.with_points(1e6 * chain.points), 0.1001).count == 1
    assert mf.clusters(chain.with_points(1e-6 * chain.points), 0.0999).count == 11


def test_invisible_tokens_belong_to_no_cluster() -> None:
    # The invisible token bridges the two others and would stretch the diameter.
    mu = mf.PointCloud([[0.0], [0.5], [1.0], [1e6]], [0.5, 0.0, 0.5, 0.0])
    found = mf.clusters(mu, 0.6)
    assert found.count == 2
    np.testing.assert_array_equal(found.labels[[1, 3]], -1)
    assert found.labels[0] != found.labels[2]


@pytest.mark.parametrize("scale", [1.0, 1e8])
def test_one_point_up_to_rounding(scale: float) -> None:
    point = scale * np.array([[0.3, -0.7]])
    assert mf.clusters(mf.PointCloud(np.tile(point, (5, 1)))).count == 1
    assert mf.clusters(mf.PointCloud(point)).count == 1
    assert mf.clusters(mf.PointCloud(np.tile(point, (5, 1)) * (1 + 1e-16 * np.arange(5)[:, None]))).count == 1


def test_tight_clusters_take_linear_memory_and_the_same_answer(monkeypatch):
    """Cells and listed pairs agree, on draws with many ties and links of exactly the tolerance."""
    from meanformer.diagnostics import clusters as module

    rng = np.random.default_rng(3)
    for _ in range(60):
        x = rng.normal(size=(rng.integers(1, 60), rng.integers(1, 4))).round(1)
        tolerance = float(rng.choice([0.02, 0.1, 0.3]))
        monkeypatch.setattr(module, "FEW_PAIRS", 10**9)
        listed = mf.clusters(mf.PointCloud(x), tolerance)
        monkeypatch.setattr(module, "FEW_PAIRS", 0)
        cells = mf.clusters(mf.PointCloud(x), tolerance)
        np.testing.assert_array_equal(cells.labels, listed.labels)
    tight = np.concatenate([rng.normal(size=(20_000, 2)) * 1e-4, 5 + rng.normal(size=(20_000, 2)) * 1e-4])
    monkeypatch.setattr(module, "FEW_PAIRS", 50)  # 4e8 pairs, if they were listed
    assert mf.clusters(mf.PointCloud(tight)).count == 2
