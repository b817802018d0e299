"""Fields with the Sinkhorn problems inside them: evaluated together with a report on these, from guesses of their
potentials.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._programs.call import program
from .._types import Queries, Scalar
from ..measures.cloud import PointCloud
from ..reduce.sums import Exact
from .base import AbstractField, AbstractNormed
from .heads import stackable, sum_stacked
from .kernel import AbstractAttention
from .potentials import Potentials
from .sinkhorn import Sinkhorn
from .view import Term, View, act

T = TypeVar("T")
# As many numbers as tokens in each; none for masked problems.
Guesses = tuple[Float[Array, " _"], ...]
# A leaf, its tokens, the queries, the values, the view and a guess to the mixed values and the solved problem.
Mix = Callable[..., tuple[Array, Potentials]]


def problems(
    field: AbstractField, mu: PointCloud, t: Scalar, view: View, kind: type[T]
) -> list[tuple[T, PointCloud, View]]:
    """The leaves of a kind inside a field, at any depth, each with the tokens that it sees and how it sees them."""
    found = []
    for term in field.terms(t):
        inner = term.view(view)
        if isinstance(term.leaf, kind):
            found.append((term.leaf, mu, inner))
        elif isinstance(term.leaf, AbstractNormed):
            found += problems(term.leaf.field, term.leaf.inside(mu, mu.points)[0], t, inner, kind)
    return found


def check_masked_sinkhorn(field: AbstractField, mu: PointCloud, t: Scalar) -> None:
    """Refuse masked Sinkhorn problems that are too large, before anything is computed."""
    for leaf, cloud, view in problems(field, mu, t, View(mu.positions), Sinkhorn):
        if view.causal:
            leaf.check_size(cloud)


class Solved(NamedTuple):
    """What a field gives, and its Sinkhorn problems as they were solved for that, leaf by leaf; none in most fields."""

    velocity: Any
    problems: tuple[Potentials, ...]

    @property
    def guesses(self) -> Guesses:
        """Where to start at nearby tokens: the potentials, and nothing for masked problems."""
        return tuple(problem.g for problem in self.problems)

    @property
    def error(self) -> Scalar:
        """The largest marginal error."""
        errors = [problem.error for problem in self.problems]
        return jnp.stack(errors).max() if errors else jnp.zeros(())

    @property
    def solved(self) -> Bool[Array, ""]:
        """Whether all problems are solved."""
        return jnp.stack([jnp.asarray(True), *(problem.converged for problem in self.problems)]).all()


class Watch(NamedTuple):
    """The Sinkhorn problems along a run: where the next ones start, the largest marginal error so far, and whether all
    so far are solved.
    """

    guesses: Guesses
    error: Scalar
    solved: Bool[Array, ""]

    def after(self, found: Solved) -> "Watch":
        """With what was solved next."""
        return Watch(found.guesses, jnp.maximum(self.error, found.error), self.solved & found.solved)


def first_guesses(field: AbstractField, mu: PointCloud, t: Scalar) -> Guesses:
    """Where to start without having solved anything: the potentials of Gaussians with the moments of the tokens."""
    return tuple(
        jnp.zeros(0, cloud.weights.dtype) if view.causal else leaf.first_guess(cloud)
        for leaf, cloud, view in problems(field, mu, t, View(mu.positions), Sinkhorn)
    )


def evaluate_solved(
    field: AbstractField, mu: PointCloud, x: Queries, t: Scalar, view: View, guesses: Guesses | None = None
) -> Solved:
    """What `field.evaluate` gives, and its Sinkhorn problems, each solved once, from `guesses` (those of `Solved` at
    nearby tokens; `first_guesses` by default). A guess changes the result by no more than the tolerance of the solver.
    """
    if not problems(field, mu, t, view, Sinkhorn):
        return Solved(field.evaluate(mu, x, t, view), ())
    guesses = first_guesses(field, mu, t) if guesses is None else guesses
    return Solved(*_evaluated(Sinkhorn.mix_solved, field, mu, x, t, view, guesses))


def mix_solved(
    leaf: AbstractAttention, mu: PointCloud, x: Queries, values: Array, view: View, guesses: Guesses | None = None
) -> Solved:
    """What `leaf.mix` gives, and its Sinkhorn problem if it has one, as in `evaluate_solved`."""
    if not isinstance(leaf, Sinkhorn):
        return Solved(leaf.mix(mu, x, values, view), ())
    mixed, found = leaf.mix_solved(mu, x, values, view, None if guesses is None else guesses[0])
    return Solved(mixed, (found,))


def evaluate_at(
    field: AbstractField, mu: PointCloud, x: Queries, t: Scalar, view: View, potentials: tuple[Potentials, ...]
) -> Float[Array, "m v"]:
    """The field in exact sums, at potentials that are known; masked problems are solved."""

    def mix(leaf: Sinkhorn, mu: PointCloud, x: Queries, values: Array, view: View, g: Array) -> tuple[Array, Any]:
        if view.causal:
            return leaf.mix_solved(mu, x, values, view)
        return leaf.mix_with(mu, g, x, values, Exact()), ()

    return _evaluated(mix, field, mu, x, t, view, Solved(x, potentials).guesses)[0]


def _evaluated(
    mix: Mix, field: AbstractField, mu: PointCloud, x: Queries, t: Scalar, view: View, guesses: Guesses
) -> tuple[Array, tuple[Any, ...]]:
    """The sum of the terms of a field, and what `mix` says of its Sinkhorn problems. Equal terms are one program."""
    total, found = None, ()
    for terms in _alike(field.terms(t)):
        view_of_terms = terms[0].view(view)
        count = len(problems(terms[0].leaf, mu, t, view_of_terms, Sinkhorn))
        mine, guesses = guesses[: count * len(terms)], guesses[count * len(terms) :]
        items = [(term.left, term.leaf, mine[i * count : (i + 1) * count]) for i, term in enumerate(terms)]

        def one(item: Any, inner: View = view_of_terms) -> tuple[Array, Any]:
            left, leaf, guesses = item
            value, found = _evaluated_leaf(mix, leaf, mu, x, t, inner, guesses)
            return act(left, value), found

        if len(items) == 1:
            value, more = one(items[0])
        else:
            value, stacked = sum_stacked(one, items, mu.n)
            more = tuple(jax.tree.map(lambda a, i=i: a[i], problem) for i in range(len(items)) for problem in stacked)
        total, found = value if total is None else total + value, (*found, *more)
    assert total is not None
    return total, found


def _alike(terms: tuple[Term, ...]) -> list[list[Term]]:
    """The terms, neighbours that differ in numbers only together."""
    groups: list[list[Term]] = []
    for term in terms:
        first = groups[-1][0] if groups else term
        if groups and term.sums is first.sums and stackable([first[:-1], term[:-1]]):
            groups[-1].append(term)
        else:
            groups.append([term])
    return groups


def _evaluated_leaf(
    mix: Mix, leaf: AbstractField, mu: PointCloud, x: Queries, t: Scalar, view: View, guesses: Guesses
) -> tuple[Array, tuple[Any, ...]]:
    if isinstance(leaf, Sinkhorn):
        values, finish = leaf.mixing(mu, view)
        mixed, found = mix(leaf, mu, x, values, view, guesses[0])
        return finish(mixed), (found,)
    if isinstance(leaf, AbstractNormed):
        value, found = _evaluated(mix, leaf.field, *leaf.inside(mu, x), t, view, guesses)
        return leaf.outside(x, value), found
    return leaf.evaluate(mu, x, t, view), ()


@program
def _at_tokens(field: AbstractField, mu: PointCloud, t: Scalar) -> Solved:
    return evaluate_solved(field, mu, mu.points, t, View(mu.positions))


def sinkhorn_excess(field: AbstractField, mu: PointCloud, t: Scalar) -> tuple[Array, Array] | None:
    """The largest marginal error of the Sinkhorn problems in `field`, and whether one of them is unsolved; None
    without any.
    """
    if not problems(field, mu, t, View(mu.positions), Sinkhorn):
        return None
    found = _at_tokens(field, mu, t)
    return found.error, ~found.solved
