"""Whether the Sinkhorn problems inside a field are solved, at a given state."""

from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Scalar
from ..measures.cloud import PointCloud
from .base import AbstractField
from .norm import PostNorm, PreNorm
from .sinkhorn import Sinkhorn
from .view import View

T = TypeVar("T")


def problems(
    field: AbstractField, mu: PointCloud, t: Scalar, view: View, kind: type[T]
) -> list[tuple[T, PointCloud, View]]:
    """The leaves of a kind inside a field, at any depth, each with the tokens that it sees and how it sees them."""
    found = []
    for term in field.terms(t):
        inner = term.view(view)
        if isinstance(term.leaf, kind):
            found.append((term.leaf, mu, inner))
        elif isinstance(term.leaf, PreNorm):
            found += problems(term.leaf.field, mu.with_points(term.leaf.norm(mu.points)), t, inner, kind)
        elif isinstance(term.leaf, PostNorm):
            found += problems(term.leaf.field, mu, t, inner, kind)
    return found


def check_masked_sinkhorn(field: AbstractField, mu: PointCloud, t: Scalar) -> None:
    """Refuse masked Sinkhorn problems that are too large, before anything is computed."""
    for leaf, cloud, view in problems(field, mu, t, View(mu.positions), Sinkhorn):
        if view.causal:
            leaf.check_size(cloud)


@eqx.filter_jit
def _errors(field: AbstractField, mu: PointCloud, t: Scalar) -> tuple[Array, Array]:
    reports = [leaf.marginal_error(mu, view) for leaf, mu, view in problems(field, mu, t, View(mu.positions), Sinkhorn)]
    return jnp.stack([error for error, _ in reports]).max(), ~jnp.stack([ok for _, ok in reports]).all()


def sinkhorn_excess(field: AbstractField, mu: PointCloud, t: Scalar) -> tuple[Array, Array] | None:
    """The largest marginal error of the Sinkhorn problems in `field`, and whether one of them is unsolved; None
    without any.
    """
    if not problems(field, mu, t, View(mu.positions), Sinkhorn):
        return None
    return _errors(field, mu, t)
