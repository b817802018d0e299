r"""Optimal plans of transport, whatever the ratio of the costs to each other (MATH g).

A solver in floating point leaves errors of rounding of the largest cost that it is given, which may be far more than
the optimum: tokens that stay where they are, far from the others, or a large power. So costs beyond what an optimal
plan can use are cut off, and where this is not enough, the next costs are those reduced by the potentials, magnified.
"""

import warnings
from typing import NamedTuple, NoReturn

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from .._scale import norm

# Up to here the assignment problem is as fast as the network simplex; at 4000 tokens it takes ten times as long.
ASSIGNMENT_TOKENS = 500
# The pivots needed were below 100 (n + m) in all that was tried, ties and tiny masses included.
PIVOTS_PER_TOKEN = 10_000
# Of the optimum: how far from it a plan may be by its own dual potentials.
DUALITY_GAP = 1e-9
# Each gains some ten digits of the largest cost, down to the thirty of the potentials.
REFINEMENTS = 6
# Of the mass: how much of it a plan may lose.
LOST_MASS = 1e-9
# A crumb is less than this part of either of its tokens; and all of them, of all mass: rounding of sums of weights.
CRUMB = 2.0**-20
CRUMBS = 2.0**-49
# Squares of smaller lengths, and smaller costs, may have lost digits.
ROOT_OF_TINY = 2.0**-480


class Cells(NamedTuple):
    """The tokens of positive weight of one measure, on the host, in float64, with weights of sum one."""

    points: np.ndarray
    weights: np.ndarray
    positions: np.ndarray | None

    @property
    def even(self) -> bool:
        """Whether all weights are equal."""
        return bool((self.weights == self.weights[0]).all())

    def part(self, index: np.ndarray) -> "Cells":
        """The measure restricted to some tokens, with weights of sum one."""
        weights = self.weights[index]
        return Cells(self.points[index], weights / weights.sum(), None)


class Plan(NamedTuple):
    """Which token goes to which, and how much of it."""

    rows: np.ndarray
    columns: np.ndarray
    masses: np.ndarray

    def gaps(self, one: Cells, two: Cells) -> np.ndarray:
        """How far each mass goes."""
        return norm(one.points[self.rows] - two.points[self.columns], axis=1)


def optimal_plan(one: Cells, two: Cells, p: float) -> Plan:
    r"""A plan that minimises $\sum\pi_{ij}|x_i-y_j|^p$, by at most `DUALITY_GAP` of the minimum more than it."""
    n, m = len(one.weights), len(two.weights)
    if min(n, m) == 1:  # there is one plan only
        rows, columns = np.divmod(np.arange(n * m), m)
        return Plan(rows, columns, one.weights[rows] * two.weights[columns])
    even = one.even and two.even
    # Equal weights are transported as whole numbers: the pivots then round nothing.
    a, b = (np.full(n, float(m)), np.full(m, float(n))) if even else (one.weights, two.weights)
    assigned = even and n == m and n <= ASSIGNMENT_TOKENS
    reach = np.inf
    while True:
        cost, reach = _costs(one.points, two.points, reach, p)
        plan, gap = _assignment(cost) if assigned else _network_simplex(a, b, cost, 1)
        # Where an optimal plan and this one differ, they do in cycles, along which the one costs no more than the
        # other: no cost of the optimal one is above the sum of n + m costs of this one.
        needed = plan.gaps(one, two).max() * (2.0 * (n + m)) ** (1 / p)
        if gap <= DUALITY_GAP or needed == 0:
            return plan
        if (needed / reach) ** p > 0.5:
            break
        reach = needed
    if not assigned:
        plan, gap = _network_simplex(a, b, cost, REFINEMENTS)
        if not gap <= DUALITY_GAP:
            _not_optimal(f"a plan that may cost more by {gap:.3g} of the optimum")
    return plan


def _costs(x: np.ndarray, y: np.ndarray, reach: float, p: float) -> tuple[np.ndarray, float]:
    r"""$\min(|x_i-y_j|/r,1)^p$, with $r$ the reach, or the largest distance if that is less; and $r$."""
    cost = distances(x, y)
    reach = min(reach, float(cost.max())) or 1.0
    np.minimum(cost, reach, out=cost)
    cost /= reach
    cost **= p
    return cost, reach


def distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    r"""All $|x_i-y_j|$."""
    # Coordinates differ by rounding of the larger one at least, or not at all.
    sizes = np.abs(np.concatenate([x, y]))
    if sizes.min(where=sizes > 0, initial=1) > ROOT_OF_TINY / np.finfo(np.float64).eps:
        return cdist(x, y)
    lengths = np.zeros((len(x), len(y)))
    for one, two in zip(x.T, y.T, strict=True):
        np.hypot(lengths, np.subtract.outer(one, two), out=lengths)
    return lengths


def _assignment(cost: np.ndarray) -> tuple[Plan, float]:
    """The optimal plan between equal weights; its gap is not known."""
    rows, columns = linear_sum_assignment(cost)
    return Plan(rows, columns, np.full(len(rows), 1 / len(rows))), np.inf


def _network_simplex(a: np.ndarray, b: np.ndarray, cost: np.ndarray, rounds: int) -> tuple[Plan, float]:
    """The optimal plan of the linear programme for costs up to one, and its gap as a part of the optimum."""
    u, v = (np.zeros((2, len(weights))) for weights in (a, b))
    magnified, scale = cost, 1.0
    while True:
        plan, du, dv = _simplex(a, b, magnified)
        plan = _without_crumbs(plan, a, b, cost)
        u, v = _added(u, scale * du), _added(v, scale * dv)
        reduced = _reduced(cost, u, v)
        violated, excess = np.maximum(0, -reduced.min(axis=1)), reduced[plan.rows, plan.columns]
        # The potentials minus the largest violations are feasible, so their value bounds the optimum from below.
        gap = float(plan.masses @ (excess + violated[plan.rows]))
        value = float(plan.masses @ cost[plan.rows, plan.columns])
        rounds -= 1
        if gap <= DUALITY_GAP * value or rounds == 0:
            return plan, gap / value if value > ROOT_OF_TINY else np.inf
        scale = 2 * sum(cost.shape) * float(violated.max() + excess.max())  # by the same cycles
        reduced /= scale
        magnified = np.minimum(reduced, 1, out=reduced)


def _simplex(a: np.ndarray, b: np.ndarray, cost: np.ndarray) -> tuple[Plan, np.ndarray, np.ndarray]:
    """A plan and its potentials, up to rounding of the largest cost."""
    from ot import emd  # here, because it loads every array library that is installed

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it warns of is raised below
        pivots = max(10**6, PIVOTS_PER_TOKEN * (len(a) + len(b)))
        plan, log = emd(a, b, cost, numItermax=pivots, log=True)
    if log["warning"] is not None:
        _not_optimal(log["warning"])
    rows, columns = np.nonzero(plan)
    masses = plan[rows, columns] / a.sum()
    if not abs(masses.sum() - 1) <= LOST_MASS:
        _not_optimal(f"a plan that lost {abs(masses.sum() - 1):.3g} of the mass")
    return Plan(rows, columns, masses), log["u"], log["v"]


def _without_crumbs(plan: Plan, a: np.ndarray, b: np.ndarray, cost: np.ndarray) -> Plan:
    """What rounding of the weights leaves over at some tokens goes to others, however far: it is no mass."""
    rows, columns, masses = plan
    order = np.lexsort((masses, -cost[rows, columns]))
    crumbs = order[(masses * a.sum() <= CRUMB * np.minimum(a[rows], b[columns]))[order]]
    crumbs = crumbs[np.cumsum(masses[crumbs]) <= CRUMBS]
    return Plan(*(np.delete(array, crumbs) for array in plan))


def _added(u: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Potentials, a sum of two numbers each, plus a step."""
    total = u[0] + step
    return np.stack([total, u[1] + _lost(u[0], step, total)])


def _reduced(cost: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The cost c - u - v, up to rounding of what it is, and not of the potentials."""
    one, two = u[0][:, None], v[0][None, :]
    total = one + two
    rest = _lost(one, two, total)
    rest += u[1][:, None] + v[1][None, :]
    np.subtract(cost, total, out=total)
    total -= rest
    return total


def _lost(one: np.ndarray, two: np.ndarray, total: np.ndarray) -> np.ndarray:
    """What rounding has taken from a sum of two numbers, exactly."""
    part = total - one
    return (one - (total - part)) + (two - part)


def _not_optimal(got: str) -> NoReturn:
    raise RuntimeError(
        "the network simplex did not reach the optimum\n"
        f"  got:      {got}\n"
        f"  expected: an optimal plan, up to {DUALITY_GAP:g} of its cost\n"
        "  remedy:   merge tokens of tiny weight, take a smaller p, or use sinkhorn_divergence"
    )
