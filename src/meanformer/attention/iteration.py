r"""The iteration for Sinkhorn potentials: a loop with one sum over tokens, and after it a turn of small cost.

A sum over tokens is what costs, to compute and to compile. So the solver is a machine: a *phase* says what is asked of
the next sums and what is done with their answer, and the sum stands once in the program:

- `SWEEP`: sweeps $g\leftarrow\mathcal Tg$, as long as they contract fast;
- `JUDGE`: the column sums at $g$, and, by the way, the values mixed there. Either all is well, or a Newton step begins;
- `SYSTEM`, `CG`: the linear system of that step, by conjugate gradients (directly, without a sum, for few tokens);
- `LINE`: the step, halved until the defect falls; then a sweep, and back to the judge.

Where Newton's steps fail they are made down a ladder of temperatures: at a high temperature every problem is easy, and
the solution, scaled, is a good start at half that temperature.

XLA compiles a kernel for each array that a turn of the loop makes. So there are no branches, sums over numbers are
products with the weights, and numbers and vectors are carried as two arrays.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._types import Scalar
from ..reduce.bounds import anywhere
from ..reduce.sums import Exact
from .problem import Problem, System

SWEEP, JUDGE, LINE, SYSTEM, CG, DONE = range(6)

# Sweeps before the contraction is judged, and how many more are cheaper than Newton steps.
TRIAL_SWEEPS = 6
PATIENCE = 40
# The reciprocals of the zeros of Chebyshev's polynomial of degree 2 on [1, 2].
DAMPINGS = 1 / (1.5 + 0.125**0.5), 1 / (1.5 - 0.125**0.5)
HALVINGS = 8
# Newton steps that are tried at first, before the ladder; and steps without progress that are borne at a level of it.
FIRST_STEPS = 12
STALL = 20
# Steps of conjugate gradients in a Newton step, which then counts as so many sweeps.
CG_STEPS = 100
# Logits at which the ladder of temperatures starts, and the defect with which a level of it is left.
EASY_LOGIT = 8.0
LEVEL_TOL = 1e-3
RIDGE = 1e-10


class Numbers(NamedTuple):
    """Where the iteration is, in numbers.

    `error` is the weighted defect at `g`, `best` the smallest worst defect at this temperature (of sweeps: the last
    one), `length` that of the step that is tried (0 if none is); the last three belong to conjugate gradients.
    """

    phase: Any
    heat: Any
    error: Any
    best: Any
    climbed: Any
    stalled: Any
    sweeps: Any
    steps: Any
    length: Any
    product: Any
    target: Any
    iterations: Any


class Vectors(NamedTuple):
    """Where the iteration is, in vectors: `g`, its row update and its sweep when it was judged; the direction of a
    step, or the iterate of conjugate gradients; and their residual, their direction, and what they divide by.
    """

    g: Any
    f: Any
    swept: Any
    x: Any
    r: Any = None
    p: Any = None
    diagonal: Any = None


class Answer(NamedTuple):
    """What the sums gave at the potential `asked`: its row update, the values mixed there, its sweep, a column averaged
    over rows and then columns, and the weighted and the worst defect.
    """

    asked: Any
    f: Any
    mixed: Any
    swept: Any
    average: Any
    error: Any
    worst: Any


class Move(NamedTuple):
    """What a turn decides, besides the numbers: whether a step is `made` and `better` than a sweep, and whether there
    is a new temperature, the first one of the ladder (`climb`), or one so many times as hot (`ratio`).
    """

    made: Any
    better: Any
    climb: Any
    ratio: Any


class Outcome(NamedTuple):
    """The end of the iteration."""

    f: Float[Array, " n"]
    g: Float[Array, " n"]
    mixed: Float[Array, "n v"]
    error: Scalar
    sweeps: Any
    steps: Any
    converged: Bool[Array, ""]


class Machine:
    """The iteration for a problem, to a worst defect `tol`, in at most `max_iter` sweeps and Newton steps."""

    def __init__(self, problem: Problem, tol: Array, max_iter: Array, values: Float[Array, "n v"]):
        self.problem, self.tol, self.max_iter = problem, tol, max_iter.astype(tol.dtype)
        self.symmetric = problem.symmetric
        self.hottest = jnp.minimum(1, EASY_LOGIT / problem.largest_logit)
        self.direct = problem.small
        # A grid does not resolve twice the logits, which the diagonal needs.
        self.with_diagonal = not self.direct and isinstance(problem.sums, Exact)
        self.cost = 1 if self.direct else CG_STEPS
        self.columns = values.shape[1]
        # Conjugate gradients need a column.
        self.values = values if self.direct or self.columns else jnp.zeros_like(values, shape=(values.shape[0], 1))

    def run(self, guess: Float[Array, " n"]) -> Outcome:
        """The solution, from a first `g`."""
        last = jax.lax.while_loop(lambda state: state[0][0] != DONE, self.turn, self.start(guess))
        s, v = Numbers(*last[0]), Vectors(*last[1])
        sweeps, steps = s.sweeps.astype(int), s.steps.astype(int)
        return Outcome(v.f, v.g, last[2][:, : self.columns], s.error, sweeps, steps, s.best <= self.tol)

    def start(self, guess: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """The state before the first turn."""
        p = self.problem
        numbers = Numbers(*[0.0] * len(Numbers._fields))._replace(heat=1.0, error=jnp.inf, best=jnp.inf)
        # A guess that is no number is no guess.
        g = jnp.where(p.visible & jnp.isfinite(p.weights @ guess), guess, 0)
        vectors = jnp.zeros((4 if self.direct else 7, guess.size), guess.dtype).at[0].set(p.centred(g))
        return jnp.asarray(numbers, guess.dtype), vectors, jnp.zeros_like(self.values)

    def turn(self, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """The sums that the phase asks for, and what it makes of them."""
        s, v, mixed = Numbers(*state[0]), Vectors(*state[1]), state[2]
        a = self.answer(s, v)
        judging = s.phase == JUDGE
        s, v, unsolved = (s, v, jnp.asarray(False)) if self.direct else self.linear_system(s, v, a)
        new, move = self.decide(s, a, unsolved)
        g = self.potential(s, v, a, move)
        v = v._replace(g=g, f=jnp.where(judging, a.f, v.f), swept=jnp.where(judging, a.swept, v.swept))
        if self.direct:
            begins = judging & (new.phase == LINE)
            # Under vmap all is done in each turn: not so what is dear.
            x = jax.lax.cond(anywhere(begins), self.direction, lambda s, v: v.x, s, v)
            v = v._replace(x=jnp.where(begins, x, v.x))
        numbers = jnp.stack([jnp.asarray(number, g.dtype) for number in new])
        return numbers, jnp.stack([vector for vector in v if vector is not None]), jnp.where(judging, a.mixed, mixed)

    def answer(self, s: Numbers, v: Vectors) -> Answer:
        """Rows at `g`, or where a step leads, and then columns at what they gave; or one of the two."""
        p = self.problem
        sweeping, averaging, doubling = (s.phase == phase for phase in (SWEEP, CG, SYSTEM))
        asked = v.g + s.length * v.x
        needed = jnp.where(s.phase == JUDGE, self.columns, jnp.where(averaging, 1, 0))
        values, between, heat = self.values, jnp.zeros_like(asked), s.heat
        # A sweep of symmetric logits is done after the rows; the diagonal needs the columns, at twice the logits.
        first, last = jnp.where(doubling, 1, 0), jnp.where(sweeping & self.symmetric, 1, 2)
        if not self.direct:
            column = jnp.zeros_like(values).at[:, 0].set(v.p / self.system(v).safe)
            values = jnp.where(averaging, column, values)
        if self.with_diagonal:
            between, heat = 2 * v.f, jnp.where(doubling, 2 * heat, heat)
        elif not self.direct:
            last = jnp.where(doubling, 1, last)
        sides = jnp.sqrt(heat) * jnp.stack([p.queries, p.keys])

        def half(i: Array, chain: tuple[Array, Array]) -> tuple[Array, Array]:
            potentials, columns = chain
            # What was mixed over rows is not asked of the columns.
            wanted = jnp.where((i == 1) & (s.phase == JUDGE), 0, needed)
            mean, update = p.half(sides[i], sides[1 - i], potentials[i], columns[i], wanted)
            return potentials.at[i + 1].set(update), columns.at[i + 1].set(mean)

        # Each half takes what the one before has given.
        empty = jnp.zeros_like(values)
        chain = jnp.stack([asked, between, between]), jnp.stack([values, empty, empty])
        (_, f, swept), (_, mixed, average) = jax.lax.fori_loop(first, last, half, chain)
        swept = jnp.where(sweeping & self.symmetric, p.mirrored(asked, f), swept)
        return Answer(asked, f, mixed, swept, average, *p.defects(asked, swept))

    def decide(self, s: Numbers, a: Answer, unsolved: Array) -> tuple[Numbers, Move]:
        """The numbers after a turn: what is next."""
        sweeping, judging, lining = (s.phase == phase for phase in (SWEEP, JUDGE, LINE))
        sweeps, tol = s.sweeps + jnp.where(sweeping, 1.0, 0.0), self.tol
        # log(error / tol) / log(before / error) more sweeps are to be expected
        fast = jnp.log(a.worst / tol) < PATIENCE * jnp.log(s.best / a.worst)
        more = (a.worst > tol) & (sweeps < self.max_iter) & (fast | (sweeps < TRIAL_SWEEPS))
        # Small defects do not bound the potentials of a badly conditioned problem: after Newton steps one more is made.
        # A start that is good enough comes from sweeps that contract fast, and is well conditioned.
        last, lost = s.heat >= 1, jnp.isnan(a.worst)
        right = jnp.where(last, tol, jnp.maximum(tol, LEVEL_TOL))
        polished = ~last | (jnp.where(jnp.isinf(s.best), a.worst, s.best) <= right)
        best = jnp.minimum(s.best, a.worst)
        stalled = jnp.where(a.worst < 0.99 * s.best, 0, s.stalled + 1)
        spent = lost | (self.cost * s.steps >= self.max_iter - s.sweeps)
        tried = (s.climbed == 0) & (s.steps >= FIRST_STEPS)
        finished = ((best <= right) & polished) | (stalled >= STALL) | spent | tried
        # The climb to the top of the ladder is made once.
        climb = last & ~(best <= tol) & (s.climbed == 0) & ~spent
        done = lost | (last & ~climb)
        levels = judging & finished & ~done
        heat = jnp.where(levels, jnp.where(climb, self.hottest, jnp.minimum(1, 2 * s.heat)), s.heat)
        better = a.error < s.error
        made = lining & (better | (s.length <= 2.0**-HALVINGS))
        after_judge = jnp.where(finished, jnp.where(done, DONE, JUDGE), LINE if self.direct else SYSTEM)
        phase = jnp.where(sweeping, jnp.where(more, SWEEP, JUDGE), jnp.where(judging, after_judge, LINE))
        phase = jnp.where(made, JUDGE, jnp.where(unsolved, CG, phase))
        best = jnp.where(judging, best, jnp.where(sweeping & more, a.worst, s.best))
        new = s._replace(
            phase=phase,
            heat=heat,
            error=jnp.where(judging, a.error, s.error),
            best=jnp.where(levels | (sweeping & ~more), jnp.inf, best),
            climbed=jnp.where(levels, 1, s.climbed),
            stalled=jnp.where(levels, 0, jnp.where(judging, stalled, s.stalled)),
            sweeps=sweeps,
            steps=s.steps + jnp.where(made, 1.0, 0.0),
            length=jnp.where(phase == LINE, jnp.where(lining, s.length / 2, 1), 0),
        )
        return new, Move(made, better, levels & climb, heat / s.heat)

    def potential(self, s: Numbers, v: Vectors, a: Answer, move: Move) -> Array:
        r"""`g` after a turn.

        For symmetric logits a sweep is half as long and damped, $g\leftarrow g+\theta(f-g)$, with two dampings in
        turn: two sweeps then contract by $\frac1{17}$ or better when $B\succeq0$, whatever the temperature (MATH b.3).
        A step that does not help in any length is a sweep.
        """
        damping = jnp.where(jnp.mod(s.sweeps, 2) == 0, *DAMPINGS)
        swept = jnp.where(self.symmetric, v.g + damping * (a.swept - v.g), a.swept)
        stepped = jnp.where(move.better, a.swept, v.swept)
        # Off the support a potential is what the sweep says.
        judged = jnp.where(move.climb, 0, move.ratio * jnp.where(self.problem.visible, v.g, a.swept))
        g = jnp.where(s.phase == SWEEP, swept, jnp.where(s.phase == JUDGE, judged, v.g))
        return self.problem.centred(jnp.where(move.made, stepped, g))

    def system(self, v: Vectors) -> System:
        r"""The linear system of a Newton step, $(\mathrm{diag}(wa)-P^\top WP)\,d=w(1-a)$, divided by $wa$."""
        return self.problem.system(v.f, v.g, jnp.exp(v.g - v.swept))

    def direction(self, s: Numbers, v: Vectors) -> Array:
        """The direction of a Newton step, for few tokens."""
        system = self.problem.heated(s.heat).system(v.f, v.g, jnp.exp(v.g - v.swept))
        return system.directly(jnp.expm1(v.swept - v.g), RIDGE)

    def linear_system(self, s: Numbers, v: Vectors, a: Answer) -> tuple[Numbers, Vectors, Array]:
        """The start of conjugate gradients, or a step of theirs; and whether more of them are to be made."""
        starts = s.phase == SYSTEM
        active, system = starts | (s.phase == CG), self.system(v)
        image = system.operated(v.p, a.average[:, 0], RIDGE)
        step = s.product / (v.p @ image)
        r = jnp.where(starts, system.root * jnp.expm1(v.swept - v.g), v.r - step * image)
        x = jnp.where(starts, 0, v.x + step * v.p)
        diagonal = system.diagonal(a.swept) if self.with_diagonal else jnp.ones_like(r)
        diagonal = jnp.where(starts, diagonal, v.diagonal)
        divided = r / diagonal
        product, residual = r @ divided, r @ r
        p = divided + jnp.where(starts, 0, product / s.product * v.p)
        target = jnp.where(starts, jnp.clip(s.error, 1e-8, 1e-2) ** 2 * residual, s.target)
        count = jnp.where(starts, 0, s.iterations + 1)
        unsolved = active & (residual > target) & (count < CG_STEPS)
        x = jnp.where(unsolved, x, x / system.safe)
        solved = v._replace(x=x, r=r, p=p, diagonal=diagonal)
        v = jax.tree.map(lambda new, old: jnp.where(active, new, old), solved, v)
        return s._replace(product=product, target=target, iterations=count), v, unsolved
