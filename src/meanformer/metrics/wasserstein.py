r"""Exact Wasserstein distances of weighted tokens, and their sliced version (MATH g).

$W_p^p=\min_\pi\int|x-y|^pd\pi(x,y)$ over the couplings of $\mu$ and $\nu$. Every coupling ends here as a list of gaps
$|x-y|$ with masses, and the distance is their power mean: the distance itself, never its power.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .. import _checks as checks
from .. import _draws as draws
from .._types import Key, is_traced
from ..measures.cloud import PointCloud
from ..measures.density import Density
from ..measures.gaussian import Gaussian
from .bures import bures_wasserstein
from .plan import Cells, optimal_plan

# Pairs of tokens that are transported exactly: 5000 x 5000 take 5 to 20 s and 1 GB (33 bytes a pair in the network
# simplex, 8 in the cost, 8 in the reduced one).
MAX_PAIRS = 25_000_000
BYTES_PER_PAIR = 56


def wasserstein(mu: Any, nu: Any, p: Any = 2) -> float:
    r"""The Wasserstein distance $W_p$ of two measures: exact, and the distance itself, not its power,

    $$W_p(\mu,\nu)=\Big(\min_{\pi\in\Pi(\mu,\nu)}\int|x-y|^p\,d\pi(x,y)\Big)^{1/p},\qquad p\ge1.$$

    On a line the coupling of quantiles is optimal, for any number of tokens. In higher dimension it is an assignment
    problem or a linear programme (network simplex), for up to 25 million pairs of tokens; beyond, see
    `sinkhorn_divergence` and `sliced_wasserstein`. It runs on the host: it cannot be traced or differentiated.

    **Arguments:** two `PointCloud`s, with any weights (positions are not looked at: see `conditional_wasserstein`); a
    `Density` stands for the tokens at the centres of its cells; two `Gaussian`s, for p = 2, have their closed form.

    **Returns:** a float.

    ```python
    mu = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    nu = mu.with_points(mu.points + jnp.array([[3.0, 4.0]]))
    assert np.isclose(mf.wasserstein(mu, nu), 5.0)  # a translation: the length of the shift
    assert np.isclose(mf.wasserstein(mu, nu, p=1), 5.0)
    ```

    MATH g.
    """
    p = checks.power(p)
    if isinstance(mu, Gaussian) and isinstance(nu, Gaussian):
        return _of_gaussians(mu, nu, p)
    one, two = on_host(*checked_clouds(mu, nu), "wasserstein")
    check_pairs(one, two)
    return in_units(*_transport(one, two, p))


def sliced_wasserstein(mu: Any, nu: Any, p: Any = 2, directions: int = 200, *, key: Key | None = None) -> float:
    r"""The Wasserstein distance of projections on lines, averaged over $N$ directions $\theta_k$ of the unit sphere,

    $$\Big(\frac1N\sum_{k=1}^NW_p^p(\theta_k\cdot\mu,\theta_k\cdot\nu)\Big)^{1/p}\le W_p(\mu,\nu),$$

    for any number of tokens: $O(n\log n)$ per direction. The distance itself, not its power.

    **Arguments:** measures as for `wasserstein`, but no Gaussians; in the plane the `directions` are equally spaced
    angles, on a line there is one, in higher dimension they are uniform draws with `key`: without one, the same draws
    each time, so that the triangle inequality holds between calls.

    **Returns:** a float.

    ```python
    mu = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    nu = mu.with_points(mu.points + jnp.array([[3.0, 4.0]]))
    assert np.isclose(mf.sliced_wasserstein(mu, nu), 5.0 / np.sqrt(2))  # |shift| / sqrt(d), for p = 2
    ```
    """
    p = checks.power(p)
    directions = checks.whole(directions, "directions")
    clouds = checked_clouds(mu, nu)
    d = clouds[0].d
    if key is not None:
        checks.draws(directions, d, key)
    one, two, exponent = scaled(*on_host(*clouds, "sliced_wasserstein"))
    distances = [
        transport(one._replace(points=one.points @ theta[:, None]), two._replace(points=two.points @ theta[:, None]), p)
        for theta in _directions(d, directions, jr.key(0) if key is None else key)
    ]
    return in_units(power_mean(np.array(distances), np.full(len(distances), 1 / len(distances)), p), exponent)


def _directions(d: int, count: int, key: Key) -> np.ndarray:
    if d == 1:
        return np.ones((1, 1))
    if d == 2:  # half a circle: opposite directions give the same distance
        angles = np.pi * (np.arange(count) + 0.5) / count
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)
    noise = np.asarray(draws.normal(key, (count, d), jnp.zeros(()).dtype), np.float64)
    return noise / np.linalg.norm(noise, axis=1, keepdims=True)


def transport(one: Cells, two: Cells, p: float) -> float:
    r"""$W_p$ of two measures that have been checked."""
    return in_units(*_transport(one, two, p))


def in_units(distance: float, exponent: int) -> float:
    """A distance in units of a power of two as a number, unless it is too large for one."""
    with np.errstate(over="ignore"):
        return float(checks.representable(np.ldexp(distance, exponent), "the distance"))


def _transport(one: Cells, two: Cells, p: float) -> tuple[float, int]:
    """The distance in units of a power of two, and its exponent."""
    one, two, exponent = scaled(one, two)
    if one.points.shape[1] == 1:
        gaps, masses = _quantile_coupling(one, two)
    else:
        plan = optimal_plan(one, two, p)
        gaps, masses = plan.gaps(one, two), plan.masses
    return power_mean(gaps, masses, p), exponent


def scaled(one: Cells, two: Cells) -> tuple[Cells, Cells, int]:
    """Both measures divided by a power of two, which is exact, so that no square overflows; and its exponent.

    The largest coordinate is then about 2^500, so that those of other tokens do not underflow beside it.
    """
    exponent = np.frexp(max(np.abs(one.points).max(), np.abs(two.points).max()))[1] - 500
    one, two = (cells._replace(points=np.ldexp(cells.points, -exponent)) for cells in (one, two))
    return one, two, int(exponent)


def power_mean(gaps: np.ndarray, masses: np.ndarray, p: float) -> float:
    r"""$(\sum_km_k\delta_k^p)^{1/p}$, scaled by the largest $\delta_k$, so that no power overflows."""
    top = gaps.max()
    return float(top * (masses @ (gaps / top) ** p) ** (1 / p)) if top > 0 else 0.0


def _quantile_coupling(one: Cells, two: Cells) -> tuple[np.ndarray, np.ndarray]:
    r"""The monotone coupling on a line, $\int_0^1|F^{-1}(u)-G^{-1}(u)|^pdu$: gaps and masses."""
    (x, F), (y, G) = _quantiles(one), _quantiles(two)
    levels = np.sort(np.concatenate([F, G]), kind="stable")  # two sorted runs: a merge
    # On (u', u] between neighbouring levels, the quantile is the first point whose level reaches u.
    gaps = np.abs(x[np.searchsorted(F, levels)] - y[np.searchsorted(G, levels)])
    return gaps, np.diff(levels, prepend=0.0)


def _quantiles(cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """The points in order, and the mass up to each; the last is one, exactly."""
    x = cells.points[:, 0]
    n = len(x)
    # Levels of the two measures that are equal must be so to the bit: a spurious mass of 1e-16 across a gap of one
    # between clusters would be a distance W_2 of 1e-8. So equal weights get quotients, others sums in extended
    # precision, in an order that permutations of the tokens do not change.
    if cells.even:
        return np.sort(x), np.arange(1, n + 1) / n
    order = np.lexsort((cells.weights, x))
    sums = np.cumsum(cells.weights[order], dtype=np.longdouble)
    return x[order], (sums / sums[-1]).astype(np.float64)


def _of_gaussians(mu: Gaussian, nu: Gaussian, p: float) -> float:
    if p != 2:
        checks.refuse(
            "between Gaussians W_p is known for p = 2",
            got=f"p = {p:g}",
            expected="p = 2",
            remedy="draw tokens for another p: gaussian.sample(1000, key=jax.random.key(0))",
        )
    if mu.mean.ndim > 1 or nu.mean.ndim > 1 or is_traced(mu, nu):
        checks.refuse(
            "wasserstein compares two single measures on the host",
            got="traced Gaussians" if is_traced(mu, nu) else f"means of shapes {mu.mean.shape} and {nu.mean.shape}",
            expected="two Gaussians with known means of shape (d,)",
            remedy="mf.bures_wasserstein(g1, g2) takes batches, and can be traced and differentiated",
        )
    return float(checks.representable(bures_wasserstein(mu, nu), "the distance"))


# Checks, shared by the distances


def checked_clouds(mu: Any, nu: Any) -> tuple[PointCloud, PointCloud]:
    """Two single measures of one dimension as weighted tokens; densities by their cells. Values may be traced."""
    one, two = _as_cloud(mu, "mu"), _as_cloud(nu, "nu")
    if one.d != two.d:
        checks.refuse(
            "the measures must live in one space",
            got=f"d = {one.d} and d = {two.d}",
            expected="the same d",
            remedy="push one of them into the space of the other: mu.push(lambda x: x @ M.T)",
        )
    return one, two


def _as_cloud(mu: Any, name: str) -> PointCloud:
    if isinstance(mu, Gaussian):
        checks.refuse(
            f"{name} must be made of tokens",
            got=f"{mu}",
            expected="a PointCloud or a Density",
            remedy="draw tokens, gaussian.sample(1000, key=jax.random.key(0)); up to d = 2, "
            "mf.to_density(gaussian); or compare moments: "
            "mf.bures_wasserstein(mf.to_gaussian(tokens), gaussian)",
        )
    if not isinstance(mu, (PointCloud, Density)):
        remedy = "mf.PointCloud(points, weights) makes one from an array of shape (n, d)"
        if hasattr(mu, "sample"):
            remedy = "draw tokens from it: law.sample(1000, key=jax.random.key(0))"
        if hasattr(mu, "final"):
            remedy = "a run has a measure at each time: run.final, run.at(t)"
        checks.refuse(
            f"{name} must be a measure", got=checks.described(mu), expected="a PointCloud or a Density", remedy=remedy
        )
    cloud = mu.cloud() if isinstance(mu, Density) else mu
    if cloud.points.ndim != 2:
        checks.refuse(
            f"{name} must be a single measure",
            got=f"a batch of shape {cloud.points.shape[:-2]}",
            expected="points of shape (n, d)",
            remedy=f"index the batch: {name}[i]",
        )
    # Measures are checked when they are made, but a run that blew up may end in others.
    checks.finite(cloud.points, f"the points of {name}")
    checks.finite(cloud.weights, f"the weights of {name}")
    if checks.known(cloud.weights):
        weights = np.asarray(cloud.weights)
        if (weights < 0).any() or not weights.any():
            checks.refuse(
                f"{name} must have mass",
                got=f"weights from {weights.min():.6g} to {weights.max():.6g}",
                expected="weights >= 0, not all of them 0",
                remedy="drop tokens of negative weight; if all mass has left the box of a density, take a larger one",
            )
    return cloud


def on_host(one: PointCloud, two: PointCloud, what: str) -> tuple[Cells, Cells]:
    """Two clouds as `Cells`; refused if traced."""
    if is_traced(one, two):
        checks.refuse(
            f"{what} runs on the host and cannot be traced",
            got="traced tokens, under jit, vmap or grad",
            expected="tokens with known values",
            remedy=f"call {what} outside jit; mf.sinkhorn_divergence can be traced and differentiated",
        )
    return _cells(one), _cells(two)


def _cells(cloud: PointCloud) -> Cells:
    points, weights, positions = jax.tree.map(np.asarray, (cloud.points, cloud.weights, cloud.positions))
    kept = weights > 0
    weights = weights[kept].astype(np.float64)
    positions = None if positions is None else positions[kept]
    return Cells(points[kept].astype(np.float64), weights / weights.sum(), positions)


def check_pairs(one: Cells, two: Cells) -> None:
    """Refuse a transport problem that is too large to be solved exactly."""
    n, m = len(one.weights), len(two.weights)
    if one.points.shape[1] == 1 or n == 1 or m == 1:
        return
    remedy = "mf.sinkhorn_divergence or mf.sliced_wasserstein, for any n; or fewer tokens: mu.resample(5000, key=key)"
    if n * m > MAX_PAIRS:
        checks.refuse(
            "these measures are too large for exact transport",
            got=f"{n} x {m} = {n * m:.3g} pairs of tokens in dimension {one.points.shape[1]}",
            expected=f"at most {MAX_PAIRS:.3g} pairs",
            remedy=remedy,
        )
    checks.fits_in_memory(f"exact transport between {n} and {m} tokens", BYTES_PER_PAIR * n * m, remedy)
