"""[measure]: where the tokens start."""

import abc
from typing import Annotated, Any, Literal

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from pydantic import Field

import meanformer as mf

from ... import _draws as draws
from ..._types import cast
from .base import Count, CountOrList, NumberOrList, OneOfForms, OneOfKinds, Positive, Seed, Site, Table, is_number
from .matrices import Matrix, Vector, VectorFile, key_for, made_matrix, made_vector
from .space import Space, made_space

Weights = Annotated[
    Any,
    OneOfForms(
        lambda value: "list" if isinstance(value, list) else "file" if isinstance(value, (dict, Table)) else None,
        {"list": list[float], "file": VectorFile},
        'weights: [0.2, 0.8], or {file = "weights.npy"}',
    ),
]
Rows = Annotated[
    Any,
    OneOfForms(
        lambda value: "list" if isinstance(value, list) else "file" if isinstance(value, (dict, Table)) else None,
        {"list": Annotated[list[list[float]], Field(min_length=1)], "file": VectorFile},
        'rows: [[1.0, 0.0], [0.0, 1.0]], or {file = "points.npy"}',
    ),
]


class Law(Table):
    """A law on R^d; `d` is 2 where nothing else says it."""

    d: Count | None = None

    def dimension(self) -> int:
        """The dimension: `d`, or the length of what is given."""
        lengths = {len(value) for value in (getattr(self, name) for name in self.sized()) if isinstance(value, list)}
        return self.d if self.d is not None else min(lengths, default=2)

    def sized(self) -> tuple[str, ...]:
        """The options that tell the dimension by their length."""
        return ()

    @abc.abstractmethod
    def law(self, site: Site) -> Any:
        """The law itself."""


class CubeLaw(Law):
    """The uniform law on a box."""

    low: NumberOrList = -1.0
    high: NumberOrList = 1.0

    def sized(self) -> tuple[str, ...]:
        return "low", "high"

    def law(self, site: Site) -> Any:
        return mf.uniform_cube(site.d, self.low, self.high)


class BallLaw(Law):
    """The uniform law on a ball."""

    radius: Positive = 1.0
    around: Vector = 0.0

    def sized(self) -> tuple[str, ...]:
        return ("around",)

    def law(self, site: Site) -> Any:
        return mf.uniform_ball(site.d, self.radius, made_vector(self.around, site.at("around"), site.d))


class SphereLaw(Law):
    """The uniform law on a sphere."""

    radius: Positive = 1.0

    def law(self, site: Site) -> Any:
        return mf.uniform_sphere(site.d, self.radius)


class GaussianLaw(Law):
    """A Gaussian: `mean` (0 by default), and `cov` (the identity by default) or a factor L with cov = L L^T."""

    mean: Vector | None = None
    cov: Matrix | None = None
    factor: Matrix | None = None

    def sized(self) -> tuple[str, ...]:
        return "mean", "cov", "factor"

    def law(self, site: Site) -> Any:
        mean = made_vector(0.0 if self.mean is None else self.mean, site.at("mean"), site.d)
        shape = (site.d, site.d)
        if self.factor is not None and self.cov is None:
            return mf.Gaussian(mean, factor=made_matrix(self.factor, site.at("factor"), shape))
        cov = made_matrix("identity" if self.cov is None else self.cov, site.at("cov"), shape)
        return mf.Gaussian(mean, cov, factor=self.factor)  # refused, if there are both


def _several(value: Any) -> bool:
    """Whether this is a list of matrices, and not one matrix."""
    rows = isinstance(value, list) and value and isinstance(value[0], list) and value[0]
    return isinstance(value, list) and not (rows and is_number(rows[0]))


Covariances = Annotated[
    Any,
    OneOfForms(
        lambda value: "several" if _several(value) else "one",
        {"one": Matrix, "several": Annotated[list[Matrix], Field(min_length=1)]},
        "a matrix, or a list of matrices",
    ),
]


class MixtureLaw(Law):
    """A mixture of Gaussians; `covs` is one matrix for all, or a list of matrices, one for each mean."""

    means: Annotated[list[list[float]], Field(min_length=1, description="one row for each Gaussian")]
    covs: Covariances = 1.0
    weights: Weights | None = None

    def dimension(self) -> int:
        return max(1, len(self.means[0])) if self.d is None else self.d

    def law(self, site: Site) -> Any:
        shape = (site.d, site.d)
        if not _several(self.covs):
            covs = made_matrix(self.covs, site.at("covs"), shape)
        else:
            several = [made_matrix(cov, site.at("covs", i), shape) for i, cov in enumerate(self.covs)]
            for i, cov in enumerate(several):
                with site.refusing("covs", i):
                    mf.Gaussian(jnp.zeros(site.d), cov)  # tells a wrong shape or sign by its number
            covs = jnp.stack(several)
        return mf.gaussian_mixture(self.means, covs, made_weights(self.weights, site))


class Measure(Table):
    """A table that means a measure."""

    @abc.abstractmethod
    def dimension(self) -> int:
        """The dimension of the space."""

    @abc.abstractmethod
    def build(self, site: Site) -> Any:
        """The measure."""


class Tokens(Measure):
    """Options of all tokens, applied in this order: centred, projected, with positions, in a dtype."""

    centre: bool = False
    project: Space | None = None
    positions: bool = False
    dtype: Literal["float32", "float64"] | None = None

    def finished(self, tokens: mf.PointCloud) -> mf.PointCloud:
        """The tokens as the options ask for."""
        if self.centre:
            tokens = tokens.push(lambda x: x - tokens.mean[None])
        sphere = made_space(self.project)
        if sphere is not None:
            tokens = tokens.push(sphere.retract)
        if self.positions:
            tokens = tokens.with_positions()
        return tokens if self.dtype is None else cast(tokens, jnp.dtype(self.dtype))


class Drawn(Law, Tokens):
    """`n` tokens from a law, by the seed of the experiment or their own: `law.sample(n, key=jax.random.key(seed))`.

    Their weights: equal; random, uniform on the simplex; or those of Zipf's law, 1 / i up to a factor for the i-th.
    """

    n: Annotated[int, Field(ge=1, description="the number of tokens")]
    weighting: Literal["equal", "random", "zipf"] = "equal"
    seed: Seed | None = None

    def build(self, site: Site) -> mf.PointCloud:
        with site.refusing():
            law = self.law(site)
            seed = site.seed if self.seed is None else self.seed
            tokens = law.sample(self.n, key=jr.key(seed))
            if self.weighting != "equal":
                dtype = np.dtype(jnp.result_type(float))
                shares = {
                    "random": draws.exponential(key_for("weights", seed), (self.n,), dtype),
                    "zipf": 1 / np.arange(1, self.n + 1, dtype=dtype),
                }
                tokens = mf.PointCloud(tokens.points, shares[self.weighting] / shares[self.weighting].sum())
            return self.finished(tokens)


class Cube(Drawn, CubeLaw):
    """Tokens in a box."""

    kind: Literal["cube"] = "cube"


class Ball(Drawn, BallLaw):
    """Tokens in a ball."""

    kind: Literal["ball"] = "ball"


class Sphere(Drawn, SphereLaw):
    """Tokens on a sphere."""

    kind: Literal["sphere"] = "sphere"


class Normal(Drawn, GaussianLaw):
    """Tokens from a Gaussian."""

    kind: Literal["normal"] = "normal"


class Mixture(Drawn, MixtureLaw):
    """Tokens from a mixture of Gaussians."""

    kind: Literal["mixture"] = "mixture"


class Points(Tokens):
    """Tokens by their coordinates, in the file or in a .npy file."""

    kind: Literal["points"] = "points"
    points: Annotated[Rows, Field(description="one row of coordinates for each token")]
    weights: Weights | None = None

    def dimension(self) -> int:
        return max(1, len(self.points[0])) if isinstance(self.points, list) else 1

    def build(self, site: Site) -> mf.PointCloud:
        with site.refusing():
            points = self.points if isinstance(self.points, list) else site.at("points").load(self.points.file)
            return self.finished(mf.PointCloud(points, made_weights(self.weights, site)))


class Gaussian(GaussianLaw, Measure):
    """A Gaussian, moved by its exact closure."""

    kind: Literal["gaussian"] = "gaussian"

    def build(self, site: Site) -> mf.Gaussian:
        with site.refusing():
            return self.law(site)


class LawCube(CubeLaw):
    """The uniform law on a box."""

    kind: Literal["cube"] = "cube"


class LawBall(BallLaw):
    """The uniform law on a ball."""

    kind: Literal["ball"] = "ball"


class LawMixture(MixtureLaw):
    """A mixture of Gaussians."""

    kind: Literal["mixture"] = "mixture"


class Density(Measure):
    """A density on a grid of `cells`, in dimension 1 or 2."""

    kind: Literal["density"] = "density"
    of: Annotated[Any, OneOfKinds(Gaussian, LawMixture, LawCube, LawBall)]
    cells: CountOrList | None = None
    low: NumberOrList | None = None
    high: NumberOrList | None = None
    positions: list[float] | None = None

    def dimension(self) -> int:
        return self.of.dimension()

    def build(self, site: Site) -> mf.Density:
        with site.refusing("of"):
            law = self.of.law(site.at("of"))
        with site.refusing():
            return mf.to_density(law, self.cells, low=self.low, high=self.high, positions=self.positions)


MEASURES: tuple[type[Measure], ...] = (Cube, Ball, Sphere, Normal, Mixture, Points, Gaussian, Density)
LAWS: tuple[type[Law], ...] = (LawMixture, LawCube, LawBall)
AnyMeasure = Annotated[Any, OneOfKinds(*MEASURES)]


def made_weights(weights: Any, site: Site) -> Any:
    """Weights in the file, or in a .npy file."""
    return site.at("weights").load(weights.file) if isinstance(weights, VectorFile) else weights
