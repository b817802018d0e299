"""The distance of masked measures (MATH d.4)."""

from typing import Any

import numpy as np

from .. import _checks as checks
from .plan import Plan
from .wasserstein import check_pairs, checked_clouds, in_units, on_host, power_mean, scaled, transport

# Position marginals that differ by less are equal: the rounding of weights that sum to one.
SAME_MASS = 1e-12


def conditional_wasserstein(mu: Any, nu: Any, p: Any = 2) -> float:
    r"""The conditional Wasserstein distance $d_p$ of masked measures, the distance itself, not its power:

    $$d_p(\mu,\nu)^p=\int W_p(\mu^s,\nu^s)^p\,d\theta(s),$$

    where $\theta$ is the law of the positions, which both measures must share, and $\mu^s$ the law of the tokens at
    position $s$; infinite if the laws of the positions differ. Mass moves in space, never between positions, so
    $d_p\ge W_p$. Tokens with equal positions form a group; where all positions are distinct,
    $d_p^p=\sum_iw_i|x_i-y_i|^p$. It runs on the host: it cannot be traced or differentiated.

    **Arguments:** two `PointCloud`s (or `Density`s) with positions; $p\ge1$.

    **Returns:** a float, perhaps `inf`.

    ```python
    mu = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]).with_positions()
    nu = mu.with_points(mu.points[::-1])  # the same tokens in the other order
    assert mf.wasserstein(mu, nu) == 0
    assert np.isclose(mf.conditional_wasserstein(mu, nu), np.sqrt(8 / 3))  # 2^2, 0, 2^2 with weights 1/3
    ```

    MATH d.4; Castin et al. 2025.
    """
    p = checks.power(p)
    clouds = checked_clouds(mu, nu)
    for name, cloud in zip(("mu", "nu"), clouds, strict=True):
        if cloud.positions is None:
            checks.refuse(
                f"{name} must have positions",
                got="tokens without positions",
                expected="a position in [0, 1] for each token",
                remedy="tokens.with_positions() for i/n; mf.wasserstein compares measures without positions",
            )
        checks.finite(cloud.positions, f"the positions of {name}")
    one, two = on_host(*clouds, "conditional_wasserstein")
    assert one.positions is not None and two.positions is not None
    # Positions in two precisions are compared in the lower one.
    coarse = min(one.positions.dtype, two.positions.dtype, key=lambda dtype: np.finfo(dtype).bits)
    places, one_groups = _groups(one.positions.astype(coarse))
    other_places, two_groups = _groups(two.positions.astype(coarse))
    if not np.array_equal(places, other_places):
        return float("inf")
    theta, other_theta = (
        np.array([c.weights[g].sum() for g in gs]) for c, gs in ((one, one_groups), (two, two_groups))
    )
    # Weights in single precision sum to one, and so agree, less well.
    rounding = max(SAME_MASS, *(100 * float(np.finfo(c.weights.dtype).eps) for c in clouds))
    if np.abs(theta - other_theta).max() > rounding:
        return float("inf")
    if len(places) == len(one.weights) == len(two.weights):
        rows, columns = np.concatenate(one_groups), np.concatenate(two_groups)
        one, two, exponent = scaled(one, two)
        gaps = Plan(rows, columns, theta).gaps(one, two)
        return in_units(power_mean(gaps, theta, p), exponent)
    pairs = [(one.part(g), two.part(h)) for g, h in zip(one_groups, two_groups, strict=True)]
    for pair in pairs:
        check_pairs(*pair)
    return power_mean(np.array([transport(*pair, p) for pair in pairs]), theta, p)


def _groups(positions: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The distinct positions in order, and which tokens are at each."""
    # Up to rounding: i / n may be computed in more than one way.
    digits = 12 if np.finfo(positions.dtype).bits > 32 else 5
    places, group = np.unique(np.round(positions, digits), return_inverse=True)
    order = np.argsort(group, kind="stable")
    return places, np.split(order, np.cumsum(np.bincount(group))[:-1])
