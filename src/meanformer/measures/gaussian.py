"""Gaussian measures N(m, L L^T), of any rank."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .. import _draws as draws
from .._indexing import checked_index
from .._programs.call import program
from .._scale import common, gram, gram_by_rows, norm, product, root, unit
from .._types import Key, as_array, cast, common_dtype
from .._warm import Module
from ..display.card import shown
from ..display.modules import module_card
from .cards import gaussian_card
from .cloud import PointCloud


def _check_covariance(cov: Array, rounding: float) -> None:
    """Refuse what is not symmetric and positive semi-definite, but for `rounding` relative to its size.

    Not relative to deviations: E[x x^T] - m m^T, or A S A^T, of what is nearly constant is rounding of any sign.
    """
    values = np.asarray(cov, np.float64)
    rounding = rounding * np.abs(values).max(axis=(-1, -2))
    asymmetry = np.abs(values - values.swapaxes(-1, -2)).max(axis=(-1, -2))
    if (asymmetry > rounding).any():
        checks.refuse(
            "cov must be symmetric",
            got=f"an asymmetry of {asymmetry.max():.3g}",
            expected="cov == cov.T",
            remedy="pass (cov + cov.T) / 2",
        )
    smallest = np.linalg.eigvalsh(values)[..., 0]
    if (smallest < -rounding).any():
        checks.refuse(
            "cov must be positive semi-definite",
            got=f"a smallest eigenvalue of {smallest.min():.3g}",
            expected="eigenvalues >= 0",
            remedy="a variance is not negative; a Gaussian also takes factor=L, and cov = L L^T is always legal",
        )


def _factor(cov: Array) -> Array:
    """A square factor L of `cov = L L^T`, one per matrix; semi-definite is legal, indefinite is refused, or NaN if
    traced.
    """
    rounding = max(1e-8, 100 * float(jnp.finfo(cov.dtype).eps))
    if not checks.known(cov):
        size, units = root(cov, (-2, -1)), _deviations(cov)
        # Not through eigh where it can be helped: its derivative is NaN for equal eigenvalues.
        cholesky = jnp.linalg.cholesky(product(cov, 1 / units)) * units
        singular = ~jnp.isfinite(cholesky).all(axis=(-2, -1), keepdims=True)
        by_eigenvalues = jax.lax.stop_gradient(_by_eigenvalues(cov / size / size, rounding) * size)
        return jnp.where(singular, by_eigenvalues, cholesky)
    _check_covariance(cov, rounding)
    units = _sound_units(np.asarray(cov))
    small = product(np.asarray(cov), 1 / units)
    if (np.linalg.eigvalsh(small)[..., 0] > rounding).all():
        return as_array(np.linalg.cholesky(small) * units)
    return as_array(_by_eigenvalues(small, rounding) * units)


def _deviations(cov: Any) -> Any:
    """The standard deviations as powers of two, of shape `(*batch, d, 1)`; the largest one where there is none."""
    xp = draws.numpy_of(cov)
    variances = xp.diagonal(cov, axis1=-2, axis2=-1)[..., None]
    return xp.where(variances > 0, root(xp.maximum(variances, 0), -1), root(cov, (-2, -1)))


def _sound_units(cov: np.ndarray) -> np.ndarray:
    """Units of the rows: deviations, so that small variances beside large ones are not taken for rounding; but one for
    all where the matrix over them is not semi-definite, since there they are.
    """
    units = _deviations(cov)
    with np.errstate(over="ignore"):
        small = product(cov, 1 / units)
    bounded = np.abs(small).max(axis=(-2, -1), keepdims=True) <= 4
    smallest = np.linalg.eigvalsh(np.where(bounded, small, 0))[..., :1, None]
    sound = bounded & (smallest >= -32 * cov.shape[-1] * np.finfo(cov.dtype).eps)
    return np.where(sound, units, root(cov, (-2, -1)))


def _by_eigenvalues(cov: Any, rounding: float) -> Any:
    """A factor of a matrix of size about one that may be singular."""
    xp = draws.numpy_of(cov)
    values, vectors = xp.linalg.eigh(cov)
    scale = xp.abs(cov).max(axis=(-1, -2))[..., None]
    # Round-off below zero is cut at round-off level: a singular covariance keeps its rank.
    roots = xp.sqrt(xp.where(values > cov.shape[-1] * jnp.finfo(cov.dtype).eps * scale, values, 0))
    return vectors * xp.where(values < -rounding * scale, np.nan, roots)[..., None, :]


def _batched(value: Any, name: str, axes: int, check: Any) -> Array:
    """`value` with its last `axes` axes as `check` wants them; axes before those are a batch, if none is empty."""
    array = checks.to_array(value, name)
    return checks.finite(array, name) if array.ndim > axes and 0 not in array.shape else check(value, name)


def _listed(values: Any) -> str:
    """A small array on one line."""
    return np.array2string(np.asarray(values, np.float64), precision=4, separator=", ").replace("\n", "")


class Gaussian(Module):
    r"""The Gaussian measure of any rank (MATH a),

    $$\mu=\mathcal N(m,\Sigma),\qquad\Sigma=LL^\top .$$

    The factor $L$ is what is kept, so that covariances are positive semi-definite by construction.

    **Arguments:** `mean` of shape `(d,)`, and either `cov` of shape `(d, d)`, symmetric, which may be singular, or
    `factor` of shape `(d, r)`. The same leading axes on both make a batch of Gaussians, or one per time.
    Derivatives by `cov` are numbers where it is definite; by `factor` everywhere.

    A `cov` that was computed has errors of rounding, in proportion to what was summed and not to its small entries. So
    asymmetries, and eigenvalues below 0, down to $-10^{-8}$ of the largest entry are taken for such (in single
    precision, $-1.2\cdot10^{-5}$); such eigenvalues become 0. Where small directions matter, give `factor`.

    **Raises:** `InputError` for a `cov` that is less symmetric, or has a more negative eigenvalue; under `jit` its
    Gaussian is not a number.

    ```python
    g = mf.Gaussian(mean=[1.0, 0.0], cov=[[2.0, 0.0], [0.0, 0.5]])
    tokens = g.sample(1000, key=jax.random.key(0))  # a PointCloud
    line = g.push([[1.0, 1.0]])  # the law of x_1 + x_2, here N(1, 2.5)
    assert jnp.allclose(line.covariance, 2.5) and g.condition == 4.0
    ```
    """

    mean: Float[Array, "*batch d"]
    """The mean $m$, shape `(d,)`."""
    factor: Float[Array, "*batch d r"]
    """A factor $L$ of the covariance, shape `(d, r)`."""

    def __init__(self, mean: Any, cov: Any = None, factor: Any = None):
        mean = _batched(mean, "mean", 1, checks.vector)
        *batch, d = mean.shape
        if d == 0:
            checks.refuse(
                "a Gaussian has at least one dimension",
                got="an empty mean",
                expected="a mean of shape (d,) with d >= 1",
                remedy="on a line pass one number: mf.Gaussian([0.0], cov=[[1.0]])",
            )
        if (cov is None) == (factor is None):
            checks.refuse(
                "a Gaussian takes either cov or factor",
                got="both" if cov is not None else "neither",
                expected="exactly one of them",
                remedy="pass cov=Sigma, or factor=L with Sigma = L L^T",
            )
        name, value = ("cov", cov) if factor is None else ("factor", factor)
        value = _batched(value, name, 2, checks.matrix)
        *value_batch, rows, columns = value.shape
        if value_batch != batch or rows != d or (name == "cov" and columns != d):
            shape = ", ".join(map(str, (*batch, d, d if name == "cov" else "r")))
            checks.refuse(
                f"{name} must match the mean",
                got=f"{name} of shape {value.shape} for a mean of {f'shape {mean.shape}' if batch else f'length {d}'}",
                expected=f"shape ({shape})",
                remedy=f"give mean and {name} of one dimension" + (" and the same leading axes" if batch else ""),
            )
        mean, value = cast((mean, value), common_dtype(mean, value))
        self.mean = mean
        self.factor = _factor(value) if name == "cov" else value

    @property
    def d(self) -> int:
        """Dimension."""
        return self.mean.shape[-1]

    @property
    def covariance(self) -> Float[Array, "*batch d d"]:
        r"""The covariance $\Sigma=LL^\top$, shape `(d, d)`."""
        return _squared(self.factor)

    @property
    def second_moment(self) -> Float[Array, "*batch d d"]:
        r"""The second moment $\int xx^\top d\mu=\Sigma+mm^\top$, shape `(d, d)`."""
        return _squared(jnp.concatenate([self.factor, self.mean[..., None]], axis=-1))

    @property
    def entropy(self) -> Float[Array, "*batch"]:
        r"""The differential entropy $\tfrac12\log\det(2\pi e\,\Sigma)$; minus infinity if $\Sigma$ is singular: if
        $L$ is, up to rounding, once its rows and columns are brought to one size.
        """
        if self.factor.shape[-1] < self.d:
            return jnp.full(self.mean.shape[:-1], -jnp.inf, self.mean.dtype)
        # log det Sigma = 2 log|det L|, without squaring the condition number; a wide L is first made square.
        rows, factor, columns = _balanced(self.factor)
        singular = _is_singular(jax.lax.stop_gradient(factor))
        # Inside the branch that is not taken the identity stands for a singular L, whose derivative is NaN.
        identity = jnp.broadcast_to(jnp.eye(self.d, dtype=factor.dtype), factor.shape)
        log_det = jnp.linalg.slogdet(jnp.where(singular[..., None, None], identity, factor))[1]
        log_det = log_det + jnp.sum(jnp.log(rows), axis=(-2, -1)) + jnp.sum(jnp.log(columns), axis=(-2, -1))
        return jnp.where(singular, -jnp.inf, self.d / 2 * math.log(2 * math.pi * math.e) + log_det)

    @property
    def condition(self) -> Float[Array, "*batch"]:
        r"""The condition number $\lambda_{\max}(\Sigma)/\lambda_{\min}(\Sigma)$, from the singular values of $L$;
        infinite if $\Sigma$ is singular, as for the entropy, or the number is beyond the range.
        """
        if self.factor.shape[-1] < self.d:
            return jnp.full(self.mean.shape[:-1], jnp.inf, self.mean.dtype)
        values = jnp.linalg.svd(self.factor, compute_uv=False)
        largest, smallest = values[..., 0], values[..., -1]
        lost = smallest <= max(self.factor.shape[-2:]) * jnp.finfo(values.dtype).eps * largest
        # A value that is lost beside the largest one is that of the inverse, which is regular up to its units.
        rows, factor, columns = _balanced(self.factor)
        singular = _is_singular(factor)
        identity = jnp.broadcast_to(jnp.eye(self.d, dtype=factor.dtype), factor.shape)
        inverse = jnp.linalg.inv(jnp.where((lost & ~singular)[..., None, None], factor, identity))
        inverse = inverse / columns.swapaxes(-1, -2) / rows.swapaxes(-1, -2)
        ratio = jnp.where(lost, largest * jnp.linalg.norm(inverse, 2, (-2, -1)), largest / jnp.where(lost, 1, smallest))
        return jnp.where(lost & singular, jnp.inf, ratio**2)

    def push(self, M: Any, b: Any = None) -> "Gaussian":
        r"""The push-forward by $x\mapsto Mx+b$: $\mathcal N(Mm+b,\,(ML)(ML)^\top)$, exact on the factor.

        **Arguments:** `M` of shape `(e, d)`, `b` of shape `(e,)`; the same map for every member of a batch.
        """
        M = checks.matrix(M, "M")
        if M.shape[1] != self.d:
            checks.refuse(
                "M must act on the space of the Gaussian",
                got=f"M of shape {M.shape} for d = {self.d}",
                expected=f"shape (e, {self.d})",
                remedy="x is mapped to M x + b: give M as many columns as the Gaussian has dimensions",
            )
        b = jnp.zeros(M.shape[0], M.dtype) if b is None else checks.vector(b, "b", M.shape[0], ", the rows of M")
        M, b, mean, factor = cast((M, b, self.mean, self.factor), common_dtype(M, b, self))
        moved = jnp.einsum("ij,...j->...i", M, mean)
        return Gaussian(moved + jnp.broadcast_to(b, moved.shape), factor=jnp.einsum("ij,...jr->...ir", M, factor))

    def sample(self, n: int, *, key: Key) -> PointCloud:
        """`n` independent draws, with equal weights."""
        n = checks.draws(n, self.d, key)
        if self.mean.ndim > 1:
            checks.refuse(
                "sample draws from a single Gaussian",
                got=f"a batch of shape {self.mean.shape[:-1]}",
                expected="a mean of shape (d,)",
                remedy="index the batch: gaussians[i].sample(...), or jax.vmap over it with one key each",
            )
        noise = draws.normal(key, (n, self.factor.shape[1]), self.mean.dtype)
        return PointCloud(draws.host(self.mean)[None] + noise @ draws.host(self.factor).T)

    def __getitem__(self, index: Any) -> "Gaussian":
        """One Gaussian, or several, of a batch."""
        if self.mean.ndim == 1:
            checks.refuse(
                "a single Gaussian cannot be indexed",
                got=f"a mean of shape {self.mean.shape}",
                expected="a batch of Gaussians with a leading axis",
                remedy="index its mean or its covariance: g.mean[i]",
            )
        index = checked_index(index, self.mean.shape[:-1])
        return jax.tree.map(lambda a: a[index], self)

    def __repr__(self) -> str:
        if not all(isinstance(a, (jax.Array, np.ndarray)) for a in (self.mean, self.factor)):
            return f"Gaussian(mean={self.mean}, factor={self.factor})"  # a tree of something else
        size = f"d={self.d}"
        if self.mean.ndim > 1:
            return f"Gaussian({size}, a batch of shape {self.mean.shape[:-1]})"
        if not checks.known(self.mean, self.factor):
            return f"Gaussian({size}, traced)"
        if self.d <= 3:
            return f"Gaussian({size}, mean={_listed(self.mean)}, cov={_listed(self.covariance)})"
        length, trace = float(norm(self.mean)), float(norm(self.factor)) ** 2
        return f"Gaussian({size}, |mean|={length:.4g}, tr(cov)={trace:.4g}, factor of width {self.factor.shape[1]})"

    _repr_html_ = shown(gaussian_card)


def _balanced(factor: Array) -> tuple[Array, Array, Array]:
    r"""$(r,M,c)$, $r$ a column and $c$ a row of powers of two, with $\Sigma=FF^\top$ for the square
    $F=\mathrm{diag}(r)\,M\,\mathrm{diag}(c)$: a small direction of $\Sigma$ does not make $M$ nearly singular.
    """
    rows = unit(factor, -1)
    factor = factor / rows
    if factor.shape[-1] > factor.shape[-2]:  # a wide one is made square, and has no units of columns
        factor = jnp.linalg.qr(factor.swapaxes(-1, -2))[1].swapaxes(-1, -2)
        return rows, factor, jnp.ones_like(rows).swapaxes(-1, -2)
    columns = unit(factor, -2)
    return rows, factor / columns, columns


def _is_singular(factor: Array) -> Array:
    values = jnp.linalg.svd(factor, compute_uv=False)
    return values[..., -1] <= factor.shape[-1] * jnp.finfo(values.dtype).eps * values[..., 0]


@program(inline=True)
def scaled_gram(factor: Array) -> tuple[Array, Array]:
    """`gram` as a program."""
    return gram(factor)


@program(inline=True)
def _squared(factor: Array) -> Array:
    return product(*gram_by_rows(factor))


class Mixture(Module):
    r"""The Gaussian mixture $\sum_c p_c\,\mathcal N(m_c,\Sigma_c)$; made by `gaussian_mixture`."""

    components: tuple[Gaussian, ...]
    weights: Float[Array, " c"]
    _repr_html_ = shown(module_card)

    @property
    def d(self) -> int:
        """Dimension."""
        return self.components[0].d

    @property
    def mean(self) -> Float[Array, " d"]:
        r"""$m=\sum_c p_c m_c$."""
        return self.weights @ jnp.stack([g.mean for g in self.components])

    @property
    def covariance(self) -> Float[Array, "d d"]:
        r"""$\Sigma=\sum_c p_c(\Sigma_c+(m_c-m)(m_c-m)^\top)$."""
        return product(*self._by_coordinates())

    def scaled_covariance(self) -> tuple[Array, Array]:
        """The covariance over the square of a power of two, and that power."""
        return common(*self._by_coordinates())

    def _by_coordinates(self) -> tuple[Array, Array]:
        shift = jnp.stack([g.mean for g in self.components]) - self.mean[None]
        factors = jnp.concatenate([jnp.stack([g.factor for g in self.components]), shift[..., None]], axis=-1)
        u = unit(factors, (0, 2))
        factors = factors / u
        return jnp.einsum("c,cir,cjr->ij", self.weights, factors, factors), u[0]

    def sample(self, n: int, *, key: Key) -> PointCloud:
        """`n` independent draws, with equal weights."""
        n = checks.draws(n, len(self.components) * self.d, key)
        which_key, *keys = draws.split(key, 1 + len(self.components))
        which = draws.choice(which_key, self.weights, n)
        points = [g.sample(n, key=k).points for g, k in zip(self.components, keys, strict=True)]
        xp = draws.numpy_of(points, which)
        return PointCloud(xp.stack(points)[which, xp.arange(n)])


def gaussian_mixture(means: Any, covs: Any, weights: Any = None) -> Mixture:
    r"""The law of a mixture of Gaussians, $\sum_cp_c\,\mathcal N(m_c,\Sigma_c)$.

    **Arguments:** `means` of shape `(c, d)`; `covs` one number (isotropic variance for all), one matrix for
    all, or shape `(c, d, d)`; `weights` of shape `(c,)`, equal by default.

    **Returns:** a law with the exact `mean` `(d,)` and `covariance` `(d, d)`, and `sample(n, key=key)`.

    ```python
    law = mf.gaussian_mixture(means=[[-2.0, 0.0], [2.0, 0.0]], covs=0.1)
    law.covariance  # [[4.1, 0], [0, 0.1]]
    assert law.sample(40, key=jax.random.key(0)).points.shape == (40, 2)
    ```
    """
    means = checks.matrix(means, "means")
    count, d = means.shape
    covs = checks.finite(checks.to_array(covs, "covs"), "covs")
    if covs.ndim == 0:
        covs = draws.host(covs) * np.eye(d, dtype=covs.dtype)
    if covs.shape not in ((d, d), (count, d, d)):
        checks.refuse(
            "covs must match the means",
            got=f"shape {covs.shape} for means of shape {means.shape}",
            expected=f"a number, ({d}, {d}) or ({count}, {d}, {d})",
            remedy="give one covariance per mean, or one for all",
        )
    covs = draws.numpy_of(covs).broadcast_to(covs, (count, d, d))
    # A cloud of the means carries the check of the weights.
    if weights is not None:
        weights = checks.vector(weights, "weights", count, ", one per mean")
    centres = PointCloud(means, weights)
    components = tuple(Gaussian(m, cov=c) for m, c in zip(draws.host(centres.points), covs, strict=True))
    components, shares = cast((components, centres.weights), common_dtype(components, centres))
    return Mixture(components, shares)
