"""Fast attention at accuracy 1e-6 on standard normal tokens: seconds, measured error, growth in n, ratio to exact."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

import meanformer as mf

from .harness import Part, Table, Timing, first_call, growth, ratio, ratio_text, seconds, side_by_side

ACCURACY = 1e-6
SIZES = (10_000, 100_000, 1_000_000)
EXACT_SIZE = 65_536
CHECKED = 2_000
FLOORS = {1: 1000, 2: 1000, 3: 300}
LARGEST_GROWTH = 1.15


def identity_softmax(k: int) -> mf.Softmax:
    """Q = K = V = I."""
    I = jnp.eye(k)
    return mf.Softmax(I, I, I)


def normal_tokens(n: int, k: int, seed: int = 0) -> mf.PointCloud:
    """Standard normal."""
    return mf.PointCloud(np.random.default_rng(seed).standard_normal((n, k)))


def error_on(field: mf.AbstractField, mu: mf.PointCloud, velocity: np.ndarray, rows: np.ndarray) -> float:
    r"""$\max_i|v_i-\Gamma(x_i)|$ over some tokens, against exact sums, relative to the field's scale: its root mean
    square over random tokens.
    """
    drawn = random_rows(mu.n)
    positions = None if mu.positions is None else np.asarray(mu.positions)

    def exactly(chosen: np.ndarray) -> np.ndarray:
        s = None if positions is None else positions[chosen]
        return np.asarray(field(mu, mu.points[chosen], s=s))

    scale = np.sqrt((exactly(drawn) ** 2).sum(axis=1).mean())
    return float(np.linalg.norm(np.asarray(velocity)[rows] - exactly(rows), axis=1).max() / scale)


def random_rows(n: int) -> np.ndarray:
    """Tokens that the planner has not seen: another seed than its own."""
    return np.random.default_rng(n + 12_345).choice(n, CHECKED, replace=False)


def extrapolated(exact: Timing, n: int, size: int) -> Timing:
    r"""Exact times at `n` tokens from those at `size`: they grow as $n^2$."""
    return Timing(exact.first, [t * (n / size) ** 2 for t in exact.rounds])


def measure_dimension(part: Part, table: Table, k: int) -> None:
    """One key dimension, all sizes: planning at each call, planned once, and exact."""
    field = identity_softmax(k)
    clouds = {n: normal_tokens(n, k) for n in SIZES}
    made = {n: first_call(lambda c=cloud: mf.plan(field, c, ACCURACY)) for n, cloud in clouds.items()}
    plans = {n: plan for n, (plan, _) in made.items()}
    calls = {}
    for n, cloud in clouds.items():
        calls[f"asked {n}"] = lambda c=cloud: mf.velocity(field, c, accuracy=ACCURACY)
        calls[f"planned {n}"] = lambda c=cloud, n=n: mf.velocity(field, c, accuracy=plans[n])
    small = normal_tokens(EXACT_SIZE, k)
    calls["exact"] = lambda: mf.velocity(field, small)
    timings = side_by_side(calls, 5)
    for n, cloud in clouds.items():
        once, asked = timings[f"planned {n}"], timings[f"asked {n}"]
        exact = extrapolated(timings["exact"], n, EXACT_SIZE)
        error = error_on(field, cloud, np.asarray(calls[f"planned {n}"]()), random_rows(n))
        table.rows.append([str(k), f"{n:,}", str(once), str(asked), seconds(made[n][1]), f"{error:.1e}"])
        table.rows[-1] += [ratio_text(exact, once), ratio_text(exact, asked), str(plans[n].words)]
        part.at_most(f"fast, k = d = {k}, n = {n:,}: error on {CHECKED:,} tokens", error, ACCURACY)
    for kind, words in (("planned", "an evaluation"), ("asked", "planning and checking at each call")):
        exponent = growth(list(SIZES[1:]), [timings[f"{kind} {n}"].median for n in SIZES[1:]])[0]
        part.at_most(f"fast, k = d = {k}: growth exponent, 1e5 to 1e6, {words}", exponent, LARGEST_GROWTH)
        exact = extrapolated(timings["exact"], SIZES[-1], EXACT_SIZE)
        faster = ratio(exact, timings[f"{kind} {SIZES[-1]}"])
        part.at_least(f"fast, k = d = {k}, n = 1e6: exact / fast, {words}", faster, FLOORS[k])


def measure(say: Callable[[str], None]) -> Part:
    """Key dimensions 1, 2, 3."""
    part = Part("fast", "Fast attention")
    head = ["k = d", "n", "planned once", "planned and checked at each call", "first plan, with compiling", "error"]
    head += ["exact / planned once", "exact / planned each time", "plan"]
    table = Table(f"Softmax, standard normal tokens, accuracy {ACCURACY:g}; medians (quartiles) of 5", head)
    for k in FLOORS:
        say(f"k = {k}")
        measure_dimension(part, table, k)
    part.tables.append(table)
    part.notes += [
        f"Exact times are extrapolated, as n^2, from {EXACT_SIZE:,} tokens, which run in turn with the others.",
        f"The error is the largest over {CHECKED:,} random tokens (not those of the planner), relative to the root "
        "mean square of the field. A plan is made once for many evaluations in a flow.",
    ]
    return part
