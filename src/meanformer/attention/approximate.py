"""A field whose sums over tokens are done in a given way."""

from jaxtyping import Array, Float

from .._types import Queries, Scalar
from ..measures.cloud import PointCloud
from ..reduce.sums import AbstractSums
from .base import AbstractField
from .view import Term, View


class Approximate(AbstractField):
    """`field`, with its sums over tokens done by `sums`; made by `mf.plan`, and by `mf.flow(..., accuracy=...)`."""

    field: AbstractField
    sums: AbstractSums

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        return self.field.evaluate(mu, x, t, View(view.s, view.causal, view.prefix, self.sums))

    def terms(self, t: Scalar) -> tuple[Term, ...]:
        return tuple(term._replace(sums=self.sums) for term in self.field.terms(t))


def unwrapped(field: AbstractField) -> AbstractField:
    """The field itself, without the way in which its sums are done."""
    return field.field if isinstance(field, Approximate) else field
