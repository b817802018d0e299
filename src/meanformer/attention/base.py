r"""The one interface of attention: a field $(\mu,x,t)\mapsto\Gamma_\mu(x)$.

A field is either a *leaf* (an attention kind, an affine map, a perceptron, ...) or a combination of fields. Every
combination is, at each time, a sum of leaves with matrices on the left,
$\Gamma_\mu(x)=\sum_h L_h\Gamma^{(h)}_\mu(x)$; `terms` gives that sum, and everything that is said of a field as
a whole (its linear part, its growth, its attention matrices) is read off the terms.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import _checks as checks
from .._programs.call import program
from .._types import Matrix, Queries, Scalar, Vector, cast, common_dtype
from .._warm import Module
from ..display.card import shown
from ..display.modules import module_card
from ..measures.cloud import PointCloud, check_range
from ..measures.density import Density
from ..measures.gaussian import Gaussian
from .closure import Closure, check_closure, closure_of, refuse_closure
from .extent import check_extent, extent_of
from .fit import masked, outputs
from .lipschitz import Lipschitz
from .view import Term, View, as_cloud, compose, one

SMALLER = "scale the tokens, Q and K, or V down: logits (Qx).(Ky) / tau must be finite, and so must sums of values"
LESS = "scale the mean, the covariance or the matrices of the field down: their products must be finite"


class AbstractField(Module):
    r"""A velocity field made by attention, $(\mu,x,t)\mapsto\Gamma_\mu(x)$.

    Call it at any points, on or off the support of the measure: `field(mu, x)` takes `x` of shape `(m, d)` to
    velocities of shape `(m, d)`. Fields add (`a + b`, `a - b`) and scale (`0.5 * a`, `a / 2`, `-a`).

    A subclass gives `evaluate` and `terms`. One that wraps another field can use those of that field:

    ```python
    class Backwards(mf.AbstractField):  # -Gamma_mu(x) at time -t
        field: mf.AbstractField

        def evaluate(self, mu, x, t, view):
            return -self.field.evaluate(mu, x, -t, view)

        def terms(self, t):
            return (-self.field).terms(-t)


    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert (mf.velocity(Backwards(mf.Affine(jnp.eye(2))), tokens) == -tokens.points).all()
    ```
    """

    # NumPy arrays leave a product to `__rmul__`, which takes numbers only.
    __array_ufunc__ = None

    @abc.abstractmethod
    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        r"""$\Gamma_\mu(x)$ at the points `x`, shape `(m, d)` to shape `(m, v)` (inputs checked and of one dtype)."""

    @abc.abstractmethod
    def terms(self, t: Scalar) -> tuple[Term, ...]:
        r"""The field at time `t` as a sum of leaves with numbers or matrices on the left,
        $\Gamma_\mu=\sum_hL_h\Gamma^{(h)}_\mu$.
        """

    def __call__(self, mu: Any, x: Any, t: Any = 0.0, *, s: Any = None) -> Float[Array, "m v"]:
        r"""$\Gamma_\mu(x)$ at the query points `x`, shape `(m, d)` to shape `(m, v)`, where v = d for a velocity.

        **Arguments:** `mu` the context, a `PointCloud` or a `Density`; `t` the time, for scheduled weights; `s` the
        positions of the queries, for masked fields, shape `(m,)` (the tokens' own when `x` is `mu.points`).
        """
        mu = as_cloud(mu)
        x, t, s = _checked_queries(self, mu, x, t, s)
        own = x is mu.points
        field, mu, x, t, s = cast((self, mu, x, t, s), common_dtype(self.terms(t), mu, x))
        return checks.representable(_evaluate(field, mu, None if own else x, t, View(s)), "the velocity", SMALLER)

    def matrix(self, mu: Any, x: Any = None, t: Any = 0.0, *, s: Any = None) -> Float[Array, "*heads m n"]:
        r"""The attention matrix $P$ of shape `(m, n)`, $\Gamma(x_i)=\sum_jP_{ij}(Vy_j+b)$; several heads are stacked,
        shape `(heads, m, n)`.

        This is the only place that forms an `m` x `n` array. By default at the tokens themselves.
        """
        mu = as_cloud(mu)
        x = mu.points if x is None and isinstance(mu, PointCloud) else x
        x, t, s = _checked_queries(self, mu, x, t, s)
        heads = len(self.terms(t))
        checks.fits_in_memory(
            f"an attention matrix of {x.shape[0]} x {mu.n}" + f" for {heads} heads" * (heads > 1),
            (2 + 2 * heads) * x.shape[0] * mu.n * x.dtype.itemsize,
            "ask for fewer rows: matrix(mu, x=mu.points[:1000])",
        )
        field, mu, x, t, s = cast((self, mu, x, t, s), common_dtype(self.terms(t), mu, x))
        matrices = matrices_of(field, mu, x, t, View(s))
        if not matrices:
            checks.refuse(
                "this field has no attention matrix",
                got=type(self).__name__,
                expected="a field with an attention kind in it",
                remedy="ask the attention that it is combined with",
            )
        found = matrices[0] if len(matrices) == 1 else jnp.stack(matrices)
        return checks.representable(found, "the attention matrix", SMALLER)

    def affine(self, gaussian: Gaussian, t: Any = 0.0) -> tuple[Float[Array, "v d"], Float[Array, " v"]]:
        r"""$(G,b)$, shapes `(v, d)` and `(v,)`, with $\Gamma_\mu(x)=Gx+b$ for a Gaussian $\mu$ (MATH e.2), without an
        inverse of $\Sigma$ or $A$.

        Softmax, L2, Sinkhorn, linear and affine fields, their sums and heads; others raise `NotGaussianPreserving`.
        """
        if not isinstance(gaussian, Gaussian):
            checks.refuse(
                "affine needs a Gaussian: on other measures a field is not affine",
                got=checks.described(gaussian),
                expected="mf.Gaussian(mean, cov)",
                remedy="ask for velocities: field(tokens, x)",
            )
        t = checks.scalar(t, "t")
        check_field(self, gaussian, t)
        terms, gaussian = cast((self.terms(t), gaussian), common_dtype(self.terms(t), gaussian))
        u, G = closure_of(terms, gaussian)
        b = u - G @ gaussian.mean
        return checks.representable(G, "the matrix of the field", LESS), checks.representable(b, "its offset", LESS)

    def __add__(self, other: "AbstractField") -> "AbstractField":
        return Sum((self, other)) if isinstance(other, AbstractField) else NotImplemented

    def __mul__(self, factor: Any) -> "AbstractField":
        return Scaled(factor, self)

    def __rmul__(self, factor: Any) -> "AbstractField":
        return Scaled(factor, self)

    def __truediv__(self, divisor: Any) -> "AbstractField":
        divisor = checks.scalar(divisor, "the divisor of a field")
        if checks.known(divisor) and float(divisor) == 0:
            checks.refuse(
                "a field cannot be divided by zero", got="field / 0", expected="a number", remedy="pass another divisor"
            )
        return Scaled(1 / divisor, self)

    def __neg__(self) -> "AbstractField":
        return Scaled(-1.0, self)

    def __sub__(self, other: "AbstractField") -> "AbstractField":
        return self + (-other) if isinstance(other, AbstractField) else NotImplemented

    _repr_html_ = shown(module_card)


class AbstractLeaf(AbstractField):
    """A field that is not a combination of others."""

    not_gaussian: ClassVar[str | None] = "is not affine on Gaussian measures"
    """Why the field does not preserve Gaussians, going on after "it ..."; None if it does."""
    moved_by_mean: ClassVar[bool] = False
    r"""Whether $G$ depends on the mean, so that the covariance does not move on its own."""
    saturates: ClassVar[bool] = False
    r"""Whether $G$ stops growing with $\Sigma$, in some directions at least: growth may slow down late."""
    normed: ClassVar[bool] = False
    """Whether it is a field inside a normalisation, `AbstractNormed`."""

    @property
    @abc.abstractmethod
    def dimensions(self) -> tuple[int, ...] | None:
        """Dimensions `(out, in)` of the field, after the length of a batch of fields; None if they are those of a field
        inside (`AbstractNormed`).
        """

    @property
    @abc.abstractmethod
    def linear_part(self) -> tuple[Matrix, Vector | None] | None:
        r"""$(V,b)$ if the field mixes the values $Vy+b$, which is what the frame $e^{-tV}x$ removes; else None."""

    @property
    @abc.abstractmethod
    def bounded(self) -> bool:
        r"""Whether $|\Gamma_\mu(x)|\le\|V\|R+|b|$ for tokens and queries in the ball of radius R (MATH d.1)."""

    @abc.abstractmethod
    def matrices(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> tuple[Float[Array, "m n"], ...]:
        """The attention matrices in the field, each of shape `(m, n)`, if any."""

    @property
    def bounded_speed(self) -> Any:
        r"""Whether $\|GL\|\le c\|L\|$ for all Gaussians, which excludes a blow-up (MATH e.4); of each in a batch."""
        return False

    def lipschitz(self, left: Array, radius: Scalar) -> Lipschitz | None:
        r"""Constants of `left` times the field on the ball of `radius` (MATH d.2); None if none are known."""
        return None

    def closure(self, gaussian: Gaussian) -> Closure:
        r"""$u=\Gamma_\mu(m)$ and $G=D\Gamma_\mu$ for a Gaussian $\mu$, if the field is then affine (MATH e.2)."""
        refuse_closure(type(self).__name__, self.not_gaussian or "has no closure")

    def stretch(self, gaussian: Gaussian) -> Float[Array, "v r"]:
        r"""$GL$, computed from the factor where that is more exact."""
        return self.closure(gaussian)[1] @ gaussian.factor

    def terms(self, t: Scalar) -> tuple[Term, ...]:
        return (Term(one(common_dtype(self)), self),)


class AbstractNormed(AbstractLeaf):
    """A field inside a normalisation: what it sees, and what becomes of what it gives."""

    field: eqx.AbstractVar[AbstractField]
    norm: eqx.AbstractVar[Any]
    normed: ClassVar[bool] = True

    @abc.abstractmethod
    def inside(self, mu: PointCloud, x: Queries) -> tuple[PointCloud, Queries]:
        """The tokens and queries that the field sees."""

    @abc.abstractmethod
    def outside(self, x: Queries, velocity: Float[Array, "m v"]) -> Float[Array, "m v"]:
        """What is made of the field at `x`."""

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        return self.outside(x, self.field.evaluate(*self.inside(mu, x), t, view))

    def matrices(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> tuple[Float[Array, "m n"], ...]:
        return matrices_of(self.field, *self.inside(mu, x), t, view)

    @property
    def dimensions(self) -> tuple[int, int] | None:
        return None

    @property
    def linear_part(self) -> None:
        return None

    @property
    def bounded(self) -> bool:
        return False


def matrices_of(
    field: AbstractField, mu: PointCloud, x: Queries, t: Scalar, view: View
) -> tuple[Float[Array, "m n"], ...]:
    """The attention matrices of all leaves of `field`."""
    return tuple(matrix for term in field.terms(t) for matrix in term.leaf.matrices(mu, x, t, term.view(view)))


@program
def _evaluate(field: AbstractField, mu: PointCloud, x: Queries | None, t: Scalar, view: View) -> Float[Array, "m v"]:
    # At the tokens themselves, that is said by identity, which arguments lose: some kinds then save a sum over tokens.
    return field.evaluate(mu, mu.points if x is None else x, t, view)


class Sum(AbstractField):
    """The sum of fields, written `a + b`."""

    fields: tuple[AbstractField, ...]

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        first, *rest = (field.evaluate(mu, x, t, view) for field in self.fields)
        for velocity in rest:
            first = first + velocity
        return first

    def terms(self, t: Scalar) -> tuple[Term, ...]:
        return tuple(term for field in self.fields for term in field.terms(t))


class Scaled(AbstractField):
    """A field times a number, written `c * a`."""

    factor: Scalar
    field: AbstractField

    def __init__(self, factor: Any, field: AbstractField):
        self.factor = checks.scalar(factor, "the factor of a field").astype(common_dtype(field))
        self.field = field

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        return self.factor * self.field.evaluate(mu, x, t, view)

    def terms(self, t: Scalar) -> tuple[Term, ...]:
        return tuple(term._replace(left=compose(self.factor, term.left)) for term in self.field.terms(t))


def check_kind(field: Any) -> None:
    """Refuse what is no field."""
    if not isinstance(field, AbstractField):
        checks.refuse(
            "the field must be an attention field",
            got=checks.described(field),
            expected="e.g. mf.Softmax(Q, K, V)",
            remedy="wrap matrices in an attention kind, a function of time in mf.Scheduled",
        )


def check_field(field: Any, mu: Any, t: Scalar, where: str = "") -> None:
    """Refuse what is no field, what is no measure, and matrices that do not fit the measure."""
    check_kind(field)
    if isinstance(mu, Gaussian):
        if mu.mean.ndim != 1:
            checks.refuse(
                "a field acts on one Gaussian at a time",
                got=f"means of shape {mu.mean.shape}",
                expected="shape (d,)",
                remedy="use jax.vmap over a batch of Gaussians, or mf.fates for their fates",
            )
        terms = field.terms(t)
        for term in terms:
            check_closure(term)
        outputs(field, mu, t, where)
        check_extent(extent_of(terms), mu)
        return
    if not isinstance(mu, (PointCloud, Density)):
        checks.refuse(
            "the measure must be a PointCloud, a Gaussian or a Density",
            got=checks.described(mu),
            expected="mf.PointCloud(points), mf.Gaussian(mean, cov), or a mf.Density",
            remedy="wrap an array of tokens in mf.PointCloud; draw from a law with .sample(n, key=key)",
        )
    if isinstance(mu, PointCloud) and mu.points.ndim != 2:
        checks.refuse(
            "a field acts on one cloud at a time",
            got=f"points of shape {mu.points.shape}",
            expected="shape (n, d)",
            remedy="use jax.vmap over a batch of clouds",
        )
    if mu.positions is None and masked(field, t):
        View(None, causal=True).query_positions(mu)
    outputs(field, mu, t, where)


def check_square(field: Any, mu: Any, t: Scalar, where: str = "") -> None:
    """Refuse a field whose values are not velocities of the tokens."""
    check_field(field, mu, t, where)
    for name, out in outputs(field, mu, t, where):
        if out != mu.d:
            checks.refuse(
                f"{name} gives no velocity of the tokens",
                got=f"output of dimension {out} for tokens of dimension {mu.d}",
                expected=f"dimension {mu.d}",
                remedy="make V square, or bring it back with MultiHead(heads, W=[W]) and W of shape (d, v)",
            )


def _checked_queries(field: Any, mu: PointCloud, x: Any, t: Any, s: Any) -> tuple[Array, Array, Array | None]:
    t = checks.scalar(t, "t")
    check_field(field, mu, t)
    if s is None and x is mu.points:
        s = mu.positions
    x = checks.finite(checks.to_array(x, "x"), "x")
    if x.ndim != 2 or x.shape[1] != mu.d or not len(x):
        checks.refuse(
            "query points must live in the space of the tokens",
            got=f"x of shape {x.shape} for tokens of dimension {mu.d}",
            expected=f"shape (m, {mu.d}) with m >= 1",
            remedy="a single point has shape (1, d): x[None]",
        )
    if s is not None:
        s = check_range(checks.vector(s, "s", x.shape[0], ", one position per query"), "s")
    if masked(field, t):
        View(s, causal=True).query_positions(mu)
    return x, t, s
