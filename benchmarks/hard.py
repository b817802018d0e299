"""Fast attention on clouds that are hard for it: wide, clustered, unequal, far apart."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import meanformer as mf

from .fast import ACCURACY, CHECKED, error_on, identity_softmax, normal_tokens, random_rows
from .harness import Part, Table, first_call, seconds, side_by_side

N = 100_000
MANY = 1_000_000
FARTHEST = 50
# Of an expanding flow, which is run with fewer tokens: late, each velocity costs much.
REACH, FLOWING = 1e4, 20_000


class Hard(NamedTuple):
    """A cloud and the field on it."""

    name: str
    field: mf.AbstractField
    cloud: mf.PointCloud


def wide(n: int, radius: float = 8.0) -> mf.PointCloud:
    """Uniform in a disc."""
    rng = np.random.default_rng(1)
    angle, share = 2 * np.pi * rng.random(n), np.sqrt(rng.random(n))
    return mf.PointCloud(radius * share[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1))


def clustered(n: int) -> Hard:
    """Tokens on the circle, late: they have gathered in clusters."""
    rng = np.random.default_rng(2)
    angle = 2 * np.pi * rng.random(n)
    I = jnp.eye(2)
    field = mf.Softmax(4 * I, 4 * I, I)
    tokens = mf.PointCloud(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    run = mf.flow(field, tokens, 5.0, accuracy=ACCURACY, space=mf.Sphere(), save=2, progress=False)
    return Hard("clustered, late in a flow on the circle", field, run.final)


def unequal(n: int) -> mf.PointCloud:
    """Weights from 1e-12 to 1, uniform in their logarithm."""
    rng = np.random.default_rng(3)
    weights = 10 ** rng.uniform(-12, 0, n)
    return mf.PointCloud(rng.standard_normal((n, 2)), weights / weights.sum())


def with_outliers(n: int, distance: float, weight: float | None = None, count: int = 1) -> mf.PointCloud:
    """Standard normal tokens and `count` far ones, perhaps with a large part of the weight."""
    rng = np.random.default_rng(4)
    points, weights = rng.standard_normal((n, 2)), np.ones(n)
    angle = 1 + np.arange(count)
    points[:count] = distance * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if weight is not None:
        weights[:count] = weight / (1 - weight) * (n - count) / count
    return mf.PointCloud(points, weights / weights.sum())


def expanded(n: int, reach: float) -> mf.PointCloud:
    r"""Standard normal tokens that have expanded until $\max|q|\max|y|=$ `reach`: late in a flow with $A=V=I$ they have
    the shape of a polygon with most of them at its corners and edges.
    """
    points = np.asarray(normal_tokens(n, 2, 5).points)
    field = identity_softmax(2)
    run = mf.flow(field, mf.PointCloud(points), 1.0, accuracy=ACCURACY, save=2, progress=False)
    late = np.asarray(run.final.points)
    return mf.PointCloud(late * np.sqrt(reach) / np.linalg.norm(late, axis=1).max())


def expanding(part: Part) -> Hard:
    r"""A flow with $A=V=I$ until $\max|q|\max|y|$ is 1e4; its time is stated."""
    field = identity_softmax(2)
    stop = mf.RadiusAbove(np.sqrt(REACH))
    run, wall = first_call(
        lambda: mf.flow(field, normal_tokens(FLOWING, 2, 5), 6.0, accuracy=ACCURACY, stop=stop, save=2, progress=False)
    )
    words = f"{wall:.1f} s with compiling, {int(run.stats['steps'])} steps, {run.stats['plans']} plans, "
    words += f"error of sums {float(run.stats['sum_error']):.1e}; {run.outcome}"
    part.stated(f"expanding flow, n = {FLOWING:,}, until range {REACH:g}", words)
    return Hard("at the end of an expanding flow, range 1e4", field, run.final)


def two_clusters(n: int, distance: float) -> mf.PointCloud:
    """Two standard normal clusters."""
    points = np.array(normal_tokens(n, 2, 6).points)
    points[: n // 2, 0] -= distance / 2
    points[n // 2 :, 0] += distance / 2
    return mf.PointCloud(points)


def clouds() -> dict[str, Callable[[], Hard]]:
    """All of them, made when they are needed."""
    field = identity_softmax(2)

    def plain(name: str, make: Callable[[], mf.PointCloud]) -> tuple[str, Callable[[], Hard]]:
        return name, lambda: Hard(name, field, make())

    return dict(
        [
            plain("radius 8", lambda: wide(MANY)),
            ("clustered, late in a flow on the circle", lambda: clustered(N)),
            plain("weights from 1e-12 to 1", lambda: unequal(MANY)),
            plain("five outliers at distance 50", lambda: with_outliers(MANY, 50.0, count=5)),
            plain("one heavy outlier, half of the weight, at distance 30", lambda: with_outliers(MANY, 30.0, 0.5)),
            plain("two clusters 1000 apart", lambda: two_clusters(N, 1e3)),
            plain("an expanded cloud, range 1e4", lambda: expanded(N, REACH)),
        ]
    )


def reach_of(field: mf.Softmax, cloud: mf.PointCloud) -> float:
    r"""$\max|q|\max|y|$."""
    queries, keys = np.asarray(cloud.points @ field.Q.T), np.asarray(cloud.points @ field.K.T)
    return float(np.linalg.norm(queries, axis=1).max() * np.linalg.norm(keys, axis=1).max())


def measure(say: Callable[[str], None]) -> Part:
    """Each cloud: plan, seconds, errors on random and on the farthest tokens."""
    part = Part("hard", "Fast attention on hard clouds")
    head = ["cloud", "n", "range max|q| max|y|", "planned once", "planned and checked at each call"]
    head += ["first plan, with compiling", "error, random", f"error, {FARTHEST} farthest", "error, planner", "plan"]
    table = Table(f"k = d = 2, accuracy {ACCURACY:g}; medians (quartiles) of 5", head)
    for name, make in {**clouds(), "an expanding flow": lambda: expanding(part)}.items():
        say(name)
        name, field, cloud = make()
        plan, first = first_call(lambda f=field, c=cloud: mf.plan(f, c, ACCURACY))
        calls = {
            "planned": lambda f=field, c=cloud, p=plan: mf.velocity(f, c, accuracy=p),
            "asked": lambda f=field, c=cloud: mf.velocity(f, c, accuracy=ACCURACY),
        }
        timings = side_by_side(calls, 5)
        velocity = np.asarray(calls["planned"]())
        points = np.asarray(cloud.points)
        far = np.argsort(np.linalg.norm(points - points.mean(axis=0), axis=1))[-FARTHEST:]
        error, worst = error_on(field, cloud, velocity, random_rows(cloud.n)), error_on(field, cloud, velocity, far)
        once, asked = timings["planned"], timings["asked"]
        row = [name, f"{cloud.n:,}", f"{reach_of(field, cloud):.3g}", str(once), str(asked), seconds(first)]
        table.rows.append([*row, f"{error:.1e}", f"{worst:.1e}", f"{plan.error:.1e}", plan.words])
        words = (
            f"fast, {name}, n = {cloud.n:,} ({seconds(once.median)}): error on {CHECKED:,} random and the far tokens"
        )
        part.at_most(words, max(error, worst), ACCURACY)
    part.tables.append(table)
    return part
