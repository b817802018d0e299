"""What the theory claims of a run, next to what was measured."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import _checks as checks
from .._programs.call import program
from .._scale import norm
from ..attention.base import AbstractField
from ..attention.schedule import is_constant, pieces_of
from ..attention.view import Term, View
from ..diagnostics.bounds import (
    euler_bound,
    grown_radii,
    lipschitz_constants,
    stability_bound,
    trace_bound,
)
from ..diagnostics.weak import finished_run, weak_residual
from ..display.card import BAD, GOOD, Html, card, shown, status, table
from ..flows.densities import NOTABLE_LOSS
from ..flows.flow import flow
from ..measures.cloud import PointCloud
from ..measures.density import Density
from ..measures.gaussian import Gaussian
from ..metrics.conditional import conditional_wasserstein
from ..metrics.wasserstein import power_mean, wasserstein
from ..spaces import Sphere

# Inequalities hold up to the errors of the solver, at its default tolerances: this share of the bound, and more in
# single precision.
SLACK = 1e-4
# Derivatives are measured at so many tokens at the most, distances between so many.
PROBES = 48
MOST_TOKENS = 2000
HEADER = ("claim", "bound", "measured", "slack", "")
BEYOND = "the bound is beyond the floating-point range"


@dataclass(frozen=True)
class Claim:
    r"""One claim of the theory about a run: that `measured` is at most `bound`.

    - `claim`: the words; `bound`: None where the theory has none for this field, or none that is finite, and `why` says
      so;
    - `measured`: what was found; not a number where nothing was measured;
    - `error`: the share of the bound by which errors of the solver may exceed it.

    $$\text{slack}=1-\frac{\text{measured}}{\text{bound}},$$

    0 for a sharp bound, negative for a violated one.

    ```python
    claim = mf.Claim("support radius R", bound=2.0, measured=1.5)
    assert claim.holds and claim.slack == 0.25
    assert mf.Claim("support radius R", bound=np.inf, measured=1.5).holds is None
    ```

    MATH d.
    """

    claim: str
    bound: float | None
    measured: float
    why: str = ""
    """Why there is no bound, in words."""
    error: float = SLACK
    """The share of the bound up to which it holds, for errors of the solver."""

    def __post_init__(self) -> None:
        if self.bound is not None and not np.isfinite(self.bound):  # it would hold of anything
            object.__setattr__(self, "bound", None)
            object.__setattr__(self, "why", BEYOND)

    @property
    def slack(self) -> float:
        """One minus measured over bound, a float of at most 1; not a number without a bound."""
        if self.bound is None:
            return np.nan
        return min(1.0, 1 - self.measured / self.bound) if self.bound > 0 else float(self.measured <= 0)

    @property
    def holds(self) -> bool | None:
        """Whether `measured` is at most `bound * (1 + error)`; None without a bound."""
        return None if self.bound is None else bool(self.measured <= self.bound * (1 + self.error))


@dataclass(frozen=True, eq=False)
class Checked:
    """The claims of the theory about one run; printed as a table.

    - `claims`: all of them, each a `Claim`; `checked["words"]` is the one whose text contains these words;
    - `violations`: those that do not hold; `ok`, and `bool(checked)`: whether there is none;
    - `title`: the run in one line;
    - `paths`: by claim, times, bound and measurement along the run, each of shape `(T,)`.

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    checked = mf.check(mf.flow(mf.Softmax(I, I, I), tokens, t1=1.0))
    times, bound, measured = checked.paths["support radius R(t)"]
    assert checked and not checked.violations and (measured <= bound).all()
    ```

    MATH d.
    """

    claims: tuple[Claim, ...]
    title: str
    paths: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
    """By claim: times, bound and measurement along the run, for pictures."""

    @property
    def violations(self) -> tuple[Claim, ...]:
        """The claims that do not hold, a tuple."""
        return tuple(claim for claim in self.claims if claim.holds is False)

    @property
    def ok(self) -> bool:
        """Whether every claim that has a bound holds."""
        return not self.violations

    def __bool__(self) -> bool:
        return self.ok

    def __getitem__(self, words: str) -> Claim:
        """The claim whose text contains `words`."""
        found = [claim for claim in self.claims if words in claim.claim]
        if len(found) != 1:
            checks.refuse(
                "name one claim",
                got=f"{words!r}, which is in {len(found)} claims",
                expected="words of one of: " + "; ".join(claim.claim for claim in self.claims),
                remedy="use more words of the claim, or go through checked.claims",
            )
        return found[0]

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        rows = []
        for claim in self.claims:
            bound = claim.why if claim.bound is None else f"{claim.bound:.4g}"
            slack = "" if claim.bound is None else f"{100 * claim.slack:.3g} %"
            verdict = {True: "holds", False: "VIOLATED", None: ""}[claim.holds]
            measured = "" if np.isnan(claim.measured) else f"{claim.measured:.4g}"
            rows.append((claim.claim, bound, measured, slack, verdict))
        return rows

    def __str__(self) -> str:
        rows = [HEADER, *self._rows()]
        widths = [max(len(row[k]) for row in rows) for k in range(5)]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self.title, *lines])

    __repr__ = __str__

    @shown
    def _repr_html_(self) -> Html:
        colours = {"holds": GOOD, "VIOLATED": BAD}
        rows = [(*row, status(colours[word], word) if word else "") for *row, word in self._rows()]
        return card(self.title, [], formula=table(HEADER, rows))

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Bounds against measurements along the run, as matplotlib axes; without a path, as `plot_claims`."""
        from ..plots.bounds import plot_checked

        return plot_checked(self, ax=ax, **options)


def check(run: Any, *, p: float | int = 2, seed: int = 0) -> Checked:
    r"""The claims of the theory about a run: a table of claim, bound, measured value and slack.

    - tokens: the support radius; the Lipschitz constants in the point and in the measure, against the largest
      derivatives found at the start and the end; the stability of $W_p$ (`conditional_wasserstein` under a mask)
      against a second run from a nearby start (drawn by `seed`); the trace bound of Sinkhorn; for layers, the
      Euler error against the flow; on the sphere, only that it is invariant;
    - Gaussians: the trace bound of Sinkhorn; if the factor has more columns than rank, that the rank does not grow;
    - densities: mass, positivity, and the mass that left the grid;
    - all: the weak residual of the PDE, which has no bound; see there how much of it is quadrature.

    Where the theory has no bound for the field, the table says so. Bounds hold up to errors of the solver, of
    1e-4 (in single precision 1e-3); limits on rounding and on lost mass are conventions, marked by "chosen".

    **Arguments:** a finished run of `mf.flow` or `mf.layers`; `p` $\ge1$, of the distances; `seed`, of the nearby
    start.

    **Returns:** a `Checked`.

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    checked = mf.check(mf.flow(mf.Softmax(I, I, I), tokens, t1=1.0))
    print(checked)  # a table: support radius R, Lipschitz constants, stability, weak residual
    assert checked.ok and np.isclose(checked["support radius"].bound, np.e)
    ```

    MATH d.
    """
    run, p, seed = finished_run(run, "check"), checks.power(p), checks.whole(seed, "seed", 0)
    kinds = {PointCloud: _of_tokens, Gaussian: _of_gaussian, Density: _of_density}
    claims, paths = kinds[type(run.system.mu)](run, p, seed)
    if len(run.times) >= 3:
        weak = weak_residual(run)
        coarse = weak.quadrature > 0.5 * weak.worst
        why = "no bound; mostly quadrature: save more often" if coarse else "no bound"
        claims.append(Claim("weak residual of the PDE", None, weak.worst, why))
    claims = [dataclasses.replace(claim, error=solver_error(run)) for claim in claims]
    return Checked(tuple(claims), run.summary(), paths)


def solver_error(run: Any) -> float:
    """The share of a bound up to which it holds for a run: 1e-4, and more in single precision."""
    return max(SLACK, 1e4 * float(jnp.finfo(run.system.dtype).eps))


def _of_tokens(run: Any, p: float, seed: int) -> tuple[list[Claim], dict[str, Any]]:
    field, states, times = run.field, run.states, np.asarray(run.times)
    radii = np.asarray(states.radius)
    if isinstance(run.system.space, Sphere):
        radius = float(run.system.space.radius)
        norms = norm(np.asarray(states.points), axis=-1)
        off = float(np.abs(norms - radius).max())
        allowed = max(1e-9, 100 * float(jnp.finfo(run.system.dtype).eps)) * radius
        return [Claim("the sphere is invariant: ||x| - r| (chosen)", allowed, off)], {}
    claims, paths = [], {}
    bounds = grown_radii(field, radii[0], run.times[0], run.times)
    if bounds is None:
        claims.append(Claim("support radius R(t)", None, float(radii.max()), no_bound(field, run.times[0])))
    else:
        values = np.asarray(bounds, np.float64)
        paths["support radius R(t)"] = (times, values, radii)
        claims.append(_along("support radius R", times, values, radii))
    claims += _lipschitz_claims(run)
    if not run.discrete:
        claims += _stability_claim(run, p, seed)
    claims += _trace_claim(run, np.asarray(states.covariance).trace(axis1=-2, axis2=-1), paths)
    if run.discrete and is_constant(field) and run.outcome.ok:
        claims += _euler_claim(run, p)
    return claims, paths


def _along(claim: str, times: np.ndarray, bounds: np.ndarray, measured: np.ndarray) -> Claim:
    """A claim for all times: told at the end, or where it fails most."""
    excess = measured / np.maximum(bounds, 1e-300)
    k = int(np.argmax(excess)) if excess.max() > 1 + SLACK else len(times) - 1
    return Claim(f"{claim}, at t = {times[k]:.3g}", float(bounds[k]), float(measured[k]))


def no_bound(field: AbstractField, t: Any) -> str:
    """Why there is no bound on the radius: the leaves that have none."""
    names = sorted({type(term.leaf).__name__ for term in _all_terms(field, t) if not term.leaf.bounded})
    return "no bound for " + ", ".join(names)


def _all_terms(field: AbstractField, t: Any) -> list[Term]:
    """The terms of all pieces of a field."""
    return [term for piece in pieces_of(field) for term in piece.terms(t)]


def _masked(run: Any) -> bool:
    return any(term.causal for term in _all_terms(run.field, run.times[0]))


def _lipschitz_claims(run: Any) -> list[Claim]:
    """Derivatives at some tokens, at the start and at the end."""
    masked = _masked(run)
    claims = []
    found: dict[str, list[tuple[float, float]]] = {"x": [], "mu": []}
    for k in (0, len(run.times) - 1):
        t, mu = run.times[k], run.states[k]
        if float(mu.radius) == 0:
            continue
        constants = lipschitz_constants(run.field, mu.radius, t)
        in_measure = constants is not None and constants.mu is not None and not masked
        if constants is None:
            return [Claim("Lipschitz constants", None, np.nan, "no constants for this field")]
        seen = np.flatnonzero(np.asarray(mu.weights) > 0)
        probes = seen[np.unique(np.linspace(0, len(seen) - 1, PROBES).astype(int))]
        in_x, in_mu = _derivatives(run.field, mu, t, jnp.asarray(probes), in_measure)
        found["x"].append((float(in_x), float(constants.x)))
        if constants.mu is not None and in_mu is not None:
            found["mu"].append((float(in_mu), float(constants.mu)))
    for name, symbol in (("x", "Lipschitz in the point, L_x"), ("mu", "Lipschitz in the measure, L_mu")):
        if found[name]:
            measured, bound = max(found[name], key=lambda pair: pair[0] / max(pair[1], 1e-300))
            claims.append(Claim(symbol, bound, measured))
    return claims


@program
def _derivatives(
    field: AbstractField, mu: PointCloud, t: Array, probes: Array, in_measure: bool
) -> tuple[Array, Array | None]:
    r"""The largest $\|D_x\Gamma_\mu(x)\|$ and $\|\partial_{x_j}\Gamma_\mu(x)\|/w_j$ over the probed tokens $x$, $x_j$.

    The latter is the gradient of the first variation of $\Gamma_\mu(x)$ at $x_j$, which $L_\mu$ bounds.
    """
    x = mu.points[probes]
    s = None if mu.positions is None else mu.positions[probes]

    def at(point: Array, moved: Array, position: Array | None) -> Array:
        cloud = mu.with_points(mu.points.at[probes].set(moved))
        return field.evaluate(cloud, point[None], t, View(None if position is None else position[None]))[0]

    in_x = jax.vmap(jax.jacfwd(at, argnums=0), in_axes=(0, None, None if s is None else 0))(x, x, s)
    largest = jnp.linalg.norm(in_x, 2, axis=(-2, -1)).max()
    if not in_measure:
        return largest, None
    in_mu = jax.vmap(jax.jacrev(at, argnums=1), in_axes=(0, None, None if s is None else 0))(x, x, s)
    in_mu = jnp.swapaxes(in_mu, 1, 2) / mu.weights[probes][None, :, None, None]
    return largest, jnp.linalg.norm(in_mu, 2, axis=(-2, -1)).max()


def _stability_claim(run: Any, p: float, seed: int) -> list[Claim]:
    mu, t0, t1 = run.system.mu, run.times[0], run.times[-1]
    if mu.n > MOST_TOKENS:
        return [Claim(f"stability of W_{p:g}", None, np.nan, f"not measured above {MOST_TOKENS} tokens")]
    if len(run.times) == 1:
        return [Claim(f"stability of W_{p:g}", None, np.nan, "one save time only")]
    start = mu.with_points(run.points[0])
    noise = 1e-3 * (float(start.radius) or 1.0) * np.random.default_rng(seed).normal(size=mu.points.shape)
    nearby = start.with_points(start.points + jnp.asarray(noise, start.points.dtype))
    bound = stability_bound(run.field, start, nearby, t1, t0, p=p)
    if bound is None or bound.exponent == np.inf:
        masked = p == 1 and _masked(run)
        beyond = f"no bound for p = {p:g} under a mask" if masked else BEYOND
        why = "no constant known for this field" if bound is None else beyond
        return [Claim(f"stability of W_{p:g}", None, np.nan, why)]
    masked, rtol = _masked(run), _strict(start)
    distance = conditional_wasserstein if masked else wasserstein
    other = flow(run.field, nearby, t1, t0=t0, save=run.times, rtol=rtol, progress=False)
    same = flow(run.field, start, t1, t0=t0, save=run.times, rtol=rtol, progress=False)
    rows = sorted({0, len(run.times) // 2, len(run.times) - 1})
    between = [float(distance(same.states[k], other.states[k], p)) for k in rows]
    # In logarithms: the constant itself may be beyond the floating-point range.
    words = f"stability: log of {'d' if masked else 'W'}_{p:g}(t) / {'d' if masked else 'W'}_{p:g}(0)"
    return [Claim(words, bound.exponent, float(np.log(max(between[1:]) / between[0])))]


def _strict(mu: PointCloud) -> float:
    """A strict tolerance for runs of these tokens: 1e-8, in single precision what there is."""
    return max(1e-8, 100 * float(jnp.finfo(mu.points.dtype).eps))


def _trace_claim(run: Any, traces: np.ndarray, paths: dict[str, Any]) -> list[Claim]:
    bounds = [trace_bound(run.field, float(traces[0]), t, run.times[0]) for t in np.asarray(run.times)]
    if len(bounds) == 1 or bounds[-1] is None:
        return []
    values = np.array(bounds, float)
    paths["trace of the covariance"] = (np.asarray(run.times), values, traces)
    return [_along("trace of the covariance", np.asarray(run.times), values, traces)]


def _euler_claim(run: Any, p: float) -> list[Claim]:
    mu, steps, t1 = run.system.mu, int(run.stats["steps"]), float(run.times[-1])
    bound = euler_bound(run.field, mu, steps, t1, p=p)
    exact = flow(run.field, mu, t1, save=2, rtol=_strict(mu), progress=False).final
    gaps = norm(np.asarray(exact.points - run.final.points), axis=1)
    # The tokens are paired with themselves: a coupling, so an upper bound on W_p, which is what the claim bounds.
    error = power_mean(gaps, np.asarray(mu.weights), p)
    why = "" if bound is not None else "no constant known for this field"
    return [Claim(f"Euler error of {steps} layers, in W_{p:g}", bound, error, why)]


def _of_gaussian(run: Any, p: float, seed: int) -> tuple[list[Claim], dict[str, Any]]:
    paths: dict[str, Any] = {}
    factors = np.asarray(run.states.factor)
    with np.errstate(over="ignore"):
        traces = norm(factors, axis=(-2, -1)) ** 2
    claims = _trace_claim(run, traces, paths)
    values = np.linalg.svd(factors, compute_uv=False)
    rank = int((values[0] > 1e-12 * values[0, 0]).sum())
    if rank < values.shape[1]:
        beyond = (values[:, rank:].max(axis=1) / np.maximum(values[:, 0], 1e-300)).max()
        claims.append(Claim(f"the rank {rank} does not grow: singular values beyond it (chosen)", 1e-10, float(beyond)))
    return claims, paths


def _of_density(run: Any, p: float, seed: int) -> tuple[list[Claim], dict[str, Any]]:
    masses, lost = (np.asarray(part, np.float64) for part in run.saved)
    totals = masses.reshape(len(masses), -1).sum(axis=1)
    claims = [
        Claim(
            "mass inside and lost sum to one (chosen)",
            5e3 * float(jnp.finfo(run.system.dtype).eps),
            float(np.abs(totals + lost - 1).max()),
        ),
        Claim("the density is not negative: -min", 0.0, float(max(0.0, -masses.min()))),
        Claim("mass lost over the edge of the grid (chosen)", NOTABLE_LOSS, float(lost[-1])),
    ]
    # No claim on the trace: the bound is sharp for affine maps, and the scheme spreads mass a little.
    return claims, {}
