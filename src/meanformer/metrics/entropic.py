r"""Entropic transport: a smooth stand-in for $W_2^2$, for any number of tokens and without an n x m array (MATH g).

$$W_\varepsilon(\mu,\nu)=\min_{\pi\in\Pi(\mu,\nu)}\int|x-y|^2d\pi+\varepsilon\,\mathrm{KL}(\pi\,|\,\mu\otimes\nu)
=\max_g\ \langle\mu,f\rangle+\langle\nu,g\rangle,\qquad f_i=-\varepsilon\operatorname{lse}_j\Big(\frac{g_j-|x_i-y_j|^2}
\varepsilon+\log b_j\Big).$$

All is computed in units of $\varepsilon$: points are divided by $\sqrt\varepsilon$, so that logits are $-|x_i-y_j|^2$.
The maximum is flat, so that potentials with marginals right up to $\delta$ give the value up to $O(\delta^2)$; and its
derivative is that at fixed $g$.
"""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .. import _checks as checks
from .._programs.call import program
from .._types import Scalar, cast, common_dtype
from .._warm import Module
from ..reduce.exact import Average, Tokens, fold_tokens, log_weights, minus_squared_distance
from .wasserstein import checked_clouds

# The ladder of temperatures: the factor between two rungs, and the marginal error at which a rung is left.
COOLING = 0.25
RUNG_TOLERANCE = 1e-2
# Products with the plan in one Newton step, at most; and halvings of its length.
CG_STEPS = 200
HALVINGS = 20
# Groups of tokens that hardly exchange mass have hardly coupled potentials, and their Newton steps are immense. The
# ridge keeps them finite; a potential moves by this much in one step, at most.
RIDGE = 1e-10
LONGEST = 16.0
# Marginals that are wrong by more than this are wrong, whatever the rounding of the logits.
WRONG = 1e-3


class NotConvergedWarning(UserWarning):
    """An iteration ended before its tolerance: the number that it returns is not accurate.

    ```python
    import warnings

    mu = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = mf.sinkhorn_divergence(mu, mu.with_points(2 * mu.points), eps=0.1, max_iter=1)
    assert caught[0].category is mf.NotConvergedWarning and not found.converged
    ```
    """


class EntropicDistance(Module):
    r"""An entropic transport cost, in units of $|x-y|^2$ (it is a squared distance), and how well it was computed.

    - `value`: the divergence or the cost, shape `()`; `float(distance)` is the same;
    - `converged`: whether all marginals are right up to the tolerance, or up to what rounding allows;
    - `iterations`: sweeps, of all transport problems together;
    - `marginal_error`: the largest $\sum_jb_j|\pi_j/b_j-1|$ among them, perhaps infinite.

    ```python
    mu = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    distance = mf.sinkhorn_divergence(mu, mu.with_points(mu.points + jnp.array([[3.0, 4.0]])), eps=0.1)
    assert distance.converged and distance.marginal_error < 1e-10
    assert np.isclose(float(distance), 25.0)
    ```

    MATH g.
    """

    value: Scalar
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    marginal_error: Scalar

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        if not checks.known(self.value, self.converged) or jnp.ndim(self.value):
            return "EntropicDistance(traced)"
        how = "converged" if bool(self.converged) else "NOT CONVERGED"
        return (
            f"{float(self.value):.6g} ({how} in {int(self.iterations)} sweeps, "
            f"marginal error {float(self.marginal_error):.1e})"
        )


def sinkhorn_divergence(mu: Any, nu: Any, eps: Any, *, tol: Any = 1e-11, max_iter: int = 10_000) -> EntropicDistance:
    r"""The debiased entropic transport cost, in units of $|x-y|^2$: a *squared* distance,

    $$S_\varepsilon(\mu,\nu)=W_\varepsilon(\mu,\nu)-\tfrac12W_\varepsilon(\mu,\mu)-\tfrac12W_\varepsilon(\nu,\nu),\qquad
    W_\varepsilon(\mu,\nu)=\min_\pi\int|x-y|^2d\pi+\varepsilon\,\mathrm{KL}(\pi\,|\,\mu\otimes\nu).$$

    It is not negative, vanishes for $\mu=\nu$ only, and goes to $W_2^2$ as $\varepsilon\to0$ and to the squared
    distance of the means as $\varepsilon\to\infty$. The cost is $|x-y|^2$, without one half. Memory is $O(n+m)$; a
    sweep costs $O(nm)$, and the smaller $\varepsilon$ is beside the squared diameter, the more of them are needed. It
    can be traced, and has first derivatives in points, in positive weights and in `eps` (both modes).

    **Arguments:**

    - `mu`, `nu`: two `PointCloud`s (or `Density`s, by their cells), with any weights;
    - `eps`: $\varepsilon>0$, in units of $|x-y|^2$; well above the rounding of the largest $|x-y|^2$, since logits are
      $|x-y|^2/\varepsilon$;
    - `tol`: what the marginals of the plans are right up to; the value is then right up to about its square;
    - `max_iter`: sweeps of each of the three transport problems (a product with the plan, in a Newton step, counts as
      one). If they do not suffice there is a `NotConvergedWarning`, and `converged` is false.

    **Returns:** an `EntropicDistance`; its `value` has shape `()`.

    ```python
    mu = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    nu = mu.with_points(mu.points + jnp.array([[3.0, 4.0]]))
    assert np.isclose(mf.sinkhorn_divergence(mu, nu, eps=0.1).value, 25.0)  # the squared shift
    ```

    MATH g.
    """
    x, a, y, b, eps, *how = _checked(mu, nu, eps, tol, max_iter)
    cross, one, two = _cross(x, a, y, b, eps, *how), _self(x, a, eps, *how), _self(y, b, eps, *how)
    return _report(cross[0] - (one[0] + two[0]) / 2, (cross[1], one[1], two[1]))


def entropic_cost(mu: Any, nu: Any, eps: Any, *, tol: Any = 1e-11, max_iter: int = 10_000) -> EntropicDistance:
    r"""The entropic transport cost itself, not debiased, in units of $|x-y|^2$:

    $$W_\varepsilon(\mu,\nu)=\min_\pi\int|x-y|^2d\pi+\varepsilon\,\mathrm{KL}(\pi\,|\,\mu\otimes\nu)
    \ \ge\ W_2^2(\mu,\nu).$$

    It does not vanish for $\mu=\nu$. **Arguments** and what is returned are those of `sinkhorn_divergence`.

    ```python
    mu = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    nu = mu.with_points(mu.points + jnp.array([[3.0, 4.0]]))
    assert mf.entropic_cost(mu, nu, eps=0.1).value > mf.wasserstein(mu, nu) ** 2
    ```

    MATH g.
    """
    value, solved = _cross(*_checked(mu, nu, eps, tol, max_iter))
    return _report(value, (solved,))


def _checked(mu: Any, nu: Any, eps: Any, tol: Any, max_iter: Any) -> tuple[Array, ...]:
    one, two = checked_clouds(mu, nu)
    eps = checks.positive(eps, "eps", "eps has the units of |x-y|^2: 0.01 to 0.1 of the variance is a usual choice")
    dtype = common_dtype(one, two)
    unit = float(jnp.finfo(dtype).eps)
    tol = checks.positive(tol, "tol", "1e-11 is the default")
    if checks.known(tol) and not float(tol) < 1:
        checks.refuse(
            "tol must be below 1", got=f"tol = {float(tol):g}", expected="0 < tol < 1", remedy="leave tol out"
        )
    limit = jnp.asarray(checks.whole(max_iter, "max_iter"))
    x, a, y, b, eps, tol = cast((one.points, one.weights, two.points, two.weights, eps, tol), dtype)
    # Less than one where mass has left the box of a density.
    a, b = a / a.sum(), b / b.sum()
    return x, a, y, b, eps, jnp.maximum(tol, 10 * unit), limit


def _report(value: Scalar, solved: tuple["_Solved", ...]) -> EntropicDistance:
    value = checks.representable(value, "the squared distance over eps, or times it,")
    converged = jnp.all(jnp.stack([s.converged for s in solved]))
    error = jnp.max(jnp.stack([s.error for s in solved]))
    result = EntropicDistance(value, converged, sum(s.sweeps for s in solved), error)  # pyright: ignore
    if checks.known(converged) and not bool(converged):
        warnings.warn(
            f"Sinkhorn sweeps ended with a marginal error of {float(error):.2g} after {int(result.iterations)} sweeps: "
            "raise max_iter or eps, or loosen tol",
            NotConvergedWarning,
            stacklevel=3,
        )
    return result


class _Solved(Module):
    """A potential of one transport problem, and how well it was solved."""

    g: Float[Array, " m"]
    converged: Bool[Array, ""]
    sweeps: Int[Array, ""]
    error: Scalar


def _cross(x: Array, a: Array, y: Array, b: Array, eps: Scalar, tol: Scalar, limit: Array) -> tuple[Scalar, _Solved]:
    r"""$W_\varepsilon(\mu,\nu)$, and how it was computed."""
    solved = _potential(*jax.lax.stop_gradient((x, a, y, b, eps)), tol, limit)
    return _cost(x, a, y, b, eps, solved.g), solved


def _self(x: Array, a: Array, eps: Scalar, tol: Scalar, limit: Array) -> tuple[Scalar, _Solved]:
    r"""$W_\varepsilon(\mu,\mu)$, and how it was computed."""
    solved = _self_potential(*jax.lax.stop_gradient((x, a, eps)), tol, limit)
    return _cost(x, a, x, a, eps, solved.g), solved


@program
def _cost(x: Array, a: Array, y: Array, b: Array, eps: Scalar, g: Array) -> Scalar:
    r"""The objective of the formula at the top, in cost units; its derivative at fixed $g$ is that of its maximum."""
    # For this cost the means separate: W_eps = |difference of the means|^2 + W_eps of the centred measures.
    gap = a @ x - b @ y
    return jnp.sum(gap**2) + eps * _centred(x, a, y, b, eps).objective(g)


def _average(x: Float[Array, "n d"], y: Float[Array, "m d"], log_b: Array, h: Array | None) -> tuple[Array, Array]:
    r"""Averages of $h_j$ with weights $b_je^{-|x_i-y_j|^2}$ (of nothing by default); and $-\log$ of their sum."""
    values = jnp.zeros((y.shape[0], 0), y.dtype) if h is None else h[:, None]
    mean, total = fold_tokens(Average(), minus_squared_distance, x, Tokens(y, log_b, values))
    return mean if h is None else mean[:, 0], -total


def _defect(weights: Array, potential: Array, updated: Array) -> Scalar:
    r"""$\sum_iw_i|r_i-1|$, where the marginals are $r=e^{\text{potential}-\text{updated}}$."""
    return jnp.sum(weights * jnp.abs(jnp.expm1(potential - updated)))


class _Pair(Module):
    """Two measures, in units in which the temperature is one."""

    x: Float[Array, "n d"]
    a: Float[Array, " n"]
    y: Float[Array, "m d"]
    b: Float[Array, " m"]

    def rows(self, g: Float[Array, " m"], h: Float[Array, " m"] | None = None) -> tuple[Array, Array]:
        r"""Averages of `h` over the rows of the plan at `g`; and the $f$ that makes them right."""
        return _average(self.x, self.y, log_weights(self.b) + g, h)

    def columns(self, f: Float[Array, " n"], h: Float[Array, " n"] | None = None) -> tuple[Array, Array]:
        r"""Averages of `h` over the columns of the plan at `f`; and the $g$ that makes them right."""
        return _average(self.y, self.x, log_weights(self.a) + f, h)

    def heated(self, heat: Scalar) -> "_Pair":
        """The same pair at `heat` times the temperature."""
        return _Pair(self.x / jnp.sqrt(heat), self.a, self.y / jnp.sqrt(heat), self.b)

    def objective(self, g: Float[Array, " m"]) -> Scalar:
        r"""The concave function of $g$ that is maximised, $\langle\mu,f\rangle+\langle\nu,g\rangle$."""
        return self.a @ self.rows(g)[1] + self.b @ g

    @property
    def squared_diameter(self) -> Scalar:
        """A bound on the $|x_i-y_j|^2$ of tokens of positive weight."""
        sides = ((self.x, self.a), (self.y, self.b))
        squares = (jnp.max(jnp.where(w > 0, jnp.sum(z**2, axis=1), 0)) for z, w in sides)
        return sum(jnp.sqrt(square) for square in squares) ** 2  # pyright: ignore

    @property
    def rounding(self) -> Scalar:
        """The marginal error that the rounding of logits leaves: no iteration gets below it."""
        return 4 * jnp.finfo(self.x.dtype).eps * self.squared_diameter


def _centred(x: Array, a: Array, y: Array, b: Array, eps: Scalar) -> _Pair:
    return _Pair((x - (a @ x)[None]) / jnp.sqrt(eps), a, (y - (b @ y)[None]) / jnp.sqrt(eps), b)


@program
def _self_potential(x: Array, a: Array, eps: Scalar, tol: Scalar, limit: Array) -> _Solved:
    r"""The potential of a measure against itself: $f=g$, and $g\leftarrow\frac12(g+\mathcal Rg)$ contracts by $\frac12$
    or better in the end, whatever $\varepsilon$ (MATH b.3).
    """
    pair = _centred(x, a, x, a, eps)
    tol = jnp.maximum(tol, pair.rounding)

    def sweep(carry: Any) -> Any:
        g, f, count = carry
        g = (g + f) / 2
        return g, pair.rows(g)[1], count + 1

    def unfinished(carry: Any) -> Array:
        g, f, count = carry
        return (_defect(a, g, f) > tol) & (count < limit)

    start = (jnp.zeros_like(a), pair.rows(jnp.zeros_like(a))[1], jnp.ones_like(limit))
    g, f, sweeps = jax.lax.while_loop(unfinished, sweep, start)
    error = _defect(a, g, f)
    return _Solved(g, error <= jnp.minimum(tol, WRONG), sweeps, error)


@program
def _potential(x: Array, a: Array, y: Array, b: Array, eps: Scalar, tol: Scalar, limit: Array) -> _Solved:
    """The potential of one measure against another."""
    pair = _centred(x, a, y, b, eps)
    tol = jnp.maximum(tol, pair.rounding)
    g, sweeps = _solve(pair, tol, limit)
    error = _defect(b, g, pair.columns(pair.rows(g)[1])[1])
    return _Solved(g, error <= jnp.minimum(tol, WRONG), sweeps, error)


def _solve(pair: _Pair, tol: Scalar, limit: Array) -> tuple[Array, Array]:
    r"""The potential `g` whose plan has the right marginals up to `tol`; and how many sweeps were made.

    A step is a sweep and a damped Newton step. Its Hessian is $-(\mathrm{diag}(m)-P^\top\mathrm{diag}(a)P)$, $P$ the
    plan with rows of sum one and $m$ its column masses, so that a product costs what a sweep does, and is counted as
    one. Steps go down a ladder of temperatures: at a high one all is easy, and potentials times temperature change
    little from one rung to the next.
    """

    def step(carry: Any) -> Any:
        heat, g, _, count = carry
        hot = pair.heated(heat)
        g = hot.columns(hot.rows(g)[1])[1]
        f = hot.rows(g)[1]
        swept = hot.columns(f)[1]
        error = _defect(pair.b, g, swept)
        last = heat <= 1
        enough = error <= jnp.where(last, tol, RUNG_TOLERANCE)
        direction, slope, products = _newton_direction(hot, f, g, swept, jnp.where(enough, 0, CG_STEPS))
        now = pair.a @ f + pair.b @ g
        longest = jnp.minimum(1, LONGEST / jnp.maximum(1, jnp.abs(direction).max()))

        def halve(trial: Any) -> Any:
            length = trial[0] / 2
            return length, hot.objective(g + length * direction)

        def gained(trial: Any) -> Array:
            length, reached = trial
            return reached >= now + 1e-4 * length * slope - 50 * jnp.finfo(now.dtype).eps * jnp.abs(now)

        def too_long(trial: Any) -> Array:
            return ~enough & ~gained(trial) & (trial[0] > longest * 2.0**-HALVINGS)

        trial = jax.lax.while_loop(too_long, halve, (2 * longest, jnp.full_like(now, -jnp.inf)))
        g = jnp.where(gained(trial), g + trial[0] * direction, g)
        cooler = jnp.where(enough, jnp.maximum(1, COOLING * heat), heat)
        return cooler, g * (heat / cooler), last & enough, count + 2 + products

    def unfinished(carry: Any) -> Array:
        return ~carry[2] & (carry[3] < limit)

    hottest = jnp.maximum(1, pair.squared_diameter)
    start = (hottest, jnp.zeros_like(pair.b), jnp.asarray(False), jnp.zeros_like(limit))
    heat, g, _, count = jax.lax.while_loop(unfinished, step, start)
    return g * heat, count


def _newton_direction(
    pair: _Pair, f: Array, g: Array, swept: Array, steps: Array
) -> tuple[Float[Array, " m"], Scalar, Int[Array, ""]]:
    r"""$\delta$ with $(\mathrm{diag}(m)-P^\top\mathrm{diag}(a)P)\delta=b-m$, the slope $\langle b-m,\delta\rangle$, and
    the number of products.

    By conjugate gradients, for $\sqrt m\,\delta$: the operator is then $I-\sqrt m\,CR/\sqrt m$, with $R$ and $C$ the
    averages over rows and columns. Where the plan is almost a permutation it is almost zero, row by row: hence the
    division by its diagonal, which is one sum with twice the logits.
    """
    mass = pair.b * jnp.exp(g - swept)
    root = jnp.sqrt(mass)
    some = root > 0
    safe = jnp.where(some, root, 1)
    gauge = root / jnp.linalg.norm(root)  # constants, which change nothing
    rhs = jnp.where(some, (pair.b - mass) / safe, 0)

    def operator(z: Array) -> Array:
        average = pair.columns(f, pair.rows(g, z / safe)[0])[0]
        return (1 + RIDGE) * z - root * average + gauge * (gauge @ z)

    # sum_i a_i P_ij^2 / m_j
    squares = 2 * g + 2 * log_weights(pair.b) - pair.heated(jnp.full_like(rhs[0], 0.5)).columns(2 * f)[1]
    diagonal = jnp.where(some, 1 + RIDGE + gauge**2 - jnp.exp(squares) / safe**2, 1)
    diagonal = jnp.maximum(diagonal, RIDGE)
    defect = jnp.linalg.norm(rhs)
    # Rough while the defect is large, so that no more is spent than the step is worth.
    target = jnp.clip(defect, 1e-8, 1e-2) * defect

    def unfinished(carry: Any) -> Array:
        _, r, _, _, count = carry
        return (jnp.linalg.norm(r) > target) & (count < steps)

    def improve(carry: Any) -> Any:
        z, r, p, rho, count = carry
        image = operator(p)
        length = rho / (p @ image)
        r = r - length * image
        preconditioned = r / diagonal
        new_rho = r @ preconditioned
        return z + length * p, r, preconditioned + new_rho / rho * p, new_rho, count + 1

    first = rhs / diagonal
    start = (jnp.zeros_like(rhs), rhs, first, rhs @ first, jnp.zeros_like(steps))
    z, *_, count = jax.lax.while_loop(unfinished, improve, start)
    return jnp.where(some, z / safe, 0), rhs @ z, count
