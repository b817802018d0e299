"""Each cell of the matrix of properties in docs/attention/index.md: what it says holds, or has a counterexample.

A property is a defect, a number that is 0 (up to rounding) where it holds: the largest one over some random clouds is
below `HOLDS` where the page says yes, and above `FAILS` where it says no. An `if` is both. All clouds have six tokens
in the plane, and six queries, so that each field is compiled once.
"""

import re
from collections.abc import Callable
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from docs.pages import DOCS, ROOT
from meanformer.experiments.config import read_experiment

HOLDS = 1e-9  # in units of the field; the tolerance of Sinkhorn is the largest error in it
FAILS = 1e-2
N, D = 6, 2

KINDS = {
    "softmax": mf.Softmax,
    "L2": mf.L2,
    "Sinkhorn": lambda Q, K, V, **how: mf.Sinkhorn(Q, K, V, tol=1e-12, **how),
    "sigmoid": mf.Sigmoid,
    "linear": mf.Linear,
    "USA": mf.Unnormalised,
    "hardmax": mf.Hardmax,
}
COLUMNS = (*KINDS, "heads", "masked")

Make = Callable[..., mf.AbstractField]


def draws(seed: int = 0, count: int = 3):
    """Random weighted tokens with positions, matrices Q, K, V, and queries."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        weights = rng.uniform(0.3, 1, N)
        cloud = mf.PointCloud(rng.normal(size=(N, D)), weights / weights.sum()).with_positions()
        yield cloud, tuple(rng.normal(size=(3, D, D)) * 0.7), rng.normal(size=(N, D)), rng


def at(field, cloud, x=None):
    """The field at the tokens; or at other queries, which stand at the positions of the tokens."""
    x = cloud.points if x is None else x
    return np.asarray(field(cloud, x, s=cloud.positions))


def changed(cloud, points=None, weights=None, positions=None):
    """The cloud with other points, weights or positions."""
    return mf.PointCloud(
        cloud.points if points is None else points,
        cloud.weights if weights is None else weights,
        cloud.positions if positions is None else positions,
    )


def away(one, two) -> float:
    """The largest difference, in units of the larger one."""
    return float(np.abs(one - two).max() / max(np.abs(one).max(), np.abs(two).max()))


# The properties: `make(Q, K, V)` is the field, and V its matrix of values.


def permutes(make, travel=True) -> float:
    worst = 0.0
    for cloud, QKV, _, rng in draws():
        order = rng.permutation(N)
        moved = mf.PointCloud(
            cloud.points[order], cloud.weights[order], cloud.positions[order] if travel else cloud.positions
        )
        worst = max(worst, away(at(make(*QKV), moved), at(make(*QKV), cloud)[order]))
    return worst


def measure(make, agree=True) -> float:
    """Tokens 3 and 4 at one place; then one of them with the weight of both, and a stray token of weight 0."""
    worst = 0.0
    for cloud, QKV, x, _ in draws():
        points, weights, positions = (np.array(a) for a in (cloud.points, cloud.weights, cloud.positions))
        points[3] = points[2]
        if agree:
            positions[3] = positions[2]
        double = changed(cloud, points, weights, positions)
        points, weights = points.copy(), weights.copy()
        points[3], weights[2], weights[3] = [3.0, -2.0], weights[2] + weights[3], 0.0
        merged = changed(cloud, points, weights, positions)
        worst = max(worst, away(at(make(*QKV), double, x), at(make(*QKV), merged, x)))
    return worst


def translation(make, equal=False) -> float:
    worst = 0.0
    for cloud, (Q, K, V), x, rng in draws():
        field, shift = make(Q, Q if equal else K, V), rng.normal(size=(1, D))
        moved = at(field, changed(cloud, cloud.points + shift), x + shift)
        worst = max(worst, away(moved, at(field, cloud, x) + shift @ V.T))
    return worst


def homogeneous(make) -> float:
    worst = 0.0
    for cloud, QKV, x, _ in draws():
        field = make(*QKV)
        worst = max(worst, away(at(field, changed(cloud, 1.7 * cloud.points), 1.7 * x), 1.7 * at(field, cloud, x)))
    return worst


def by_a_alone(make) -> float:
    worst = 0.0
    for cloud, (Q, K, V), x, rng in draws():
        M = np.eye(D) + 0.4 * rng.normal(size=(D, D))
        same = make(M @ Q, np.linalg.inv(M).T @ K, V)  # the same K^T Q
        worst = max(worst, away(at(same, cloud, x), at(make(Q, K, V), cloud, x)))
    return worst


def hull(make, centres=((0.0, 0.0), (4.0, 0.0))) -> float:
    """How far V^-1 of the velocity is outside of the hull of the tokens, by their supports in many directions."""
    worst = 0.0
    angles = np.linspace(0, 2 * np.pi, 400)
    directions = np.stack([np.cos(angles), np.sin(angles)])
    for start, (Q, K, V), x, _ in draws():
        for centre in centres:
            cloud = changed(start, start.points - start.mean[None] + jnp.asarray(centre)[None])
            inside = at(make(Q, K, V), cloud, x) @ np.linalg.inv(V).T
            excess = (inside @ directions).max(axis=0) - (np.asarray(cloud.points) @ directions).max(axis=0)
            worst = max(worst, float(excess.max()) / float(cloud.radius))
    return worst


def radius(make) -> float:
    """By how much |Gamma| exceeds |V| R, also for tokens that are far away, all in one direction."""
    worst = 0.0
    for cloud, (Q, K, V), x, _ in draws():
        for factor, shift in ((1.0, 0.0), (3.0, 0.0), (1.0, 3.0)):
            far = changed(cloud, factor * cloud.points + shift)
            speed = np.linalg.norm(at(make(Q, K, V), far, factor * x + shift), axis=1).max()
            worst = max(worst, speed / (np.linalg.norm(V, 2) * float(far.radius)) - 1)
    return worst


def blow_up(make) -> float:
    """Tokens at one place r e with Q = K = V = I, where they stay on the ray: 0 if their speed is at most c r, with the
    largest c that sums over six tokens allow; else by how much it grows, at the least, as r doubles, minus 3. What
    grows by 4 is quadratic in r, or more, so that the tokens are at infinity in finite time.
    """
    I, e = np.eye(D), np.array([0.6, 0.8])

    def speed(r: float) -> float:
        velocity = at(make(I, I, I), mf.PointCloud(np.tile(r * e, (N, 1))).with_positions())
        assert np.abs(velocity @ [0.8, -0.6]).max() <= 1e-12 * np.abs(velocity).max()
        return float((velocity @ e).max())

    if all(speed(r) <= (N + 1) * r for r in (1.0, 12.0, 1e3, 1e6)):
        return 0.0
    speeds = [speed(r) for r in (3.0, 6.0, 12.0)]
    return min(speeds[1] / speeds[0], speeds[2] / speeds[1]) - 3


def mean(make) -> float:
    worst = 0.0
    for cloud, (Q, K, V), _, _ in draws():
        velocity = at(make(Q, K, V), cloud)
        worst = max(worst, float(np.abs(cloud.weights @ velocity - V @ cloud.mean).max() / np.abs(velocity).max()))
    return worst


def bent(field, cloud, rng) -> float:
    """The largest second difference over three queries on a segment, all at the last position but one."""
    x, y = rng.normal(size=(2, N // 3, D)) * 1.5
    queries = np.concatenate([x, (x + y) / 2, y])
    values = np.asarray(field(cloud, queries, s=np.full(N, float(cloud.positions[-2]))))
    first, middle, last = np.split(values, 3)
    return away(first + last, 2 * middle)


def affine(make) -> float:
    return max(bent(make(*QKV), cloud, rng) for cloud, QKV, _, rng in draws(count=4))


def gaussians(make) -> float:
    """The field of a Gaussian on a line, by quadrature, against its G x + b, if it says so; else how bent it is."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(N)
    worst = 0.0
    for _, (Q, K, V), x, rng in draws(count=3):
        m, factor = rng.normal(size=D), 0.03 * rng.normal(size=(D, 1))
        cloud = mf.PointCloud(m + nodes[:, None] @ factor.T, weights / weights.sum()).with_positions(np.ones(N))
        field = make(Q, K, V)
        bend = bent(field, cloud, rng)
        try:
            G, b = field.affine(mf.Gaussian(m, factor=factor))
        except mf.NotGaussianPreserving:
            worst = max(worst, bend)
        else:
            worst = max(worst, bend, away(at(field, cloud, x), x @ np.asarray(G).T + np.asarray(b)))
    return worst


def masked_gaussians(make) -> float:
    """Under a mask: two Gaussians of three nodes each, the first of them seen by both positions."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    worst = 0.0
    for _, QKV, _, rng in draws(count=3):
        groups = [rng.normal(size=D) + nodes[:, None] @ (0.2 * rng.normal(size=(1, D))) for _ in range(2)]
        cloud = mf.PointCloud(np.concatenate(groups), np.tile(weights / weights.sum() / 2, 2), [0.5] * 3 + [1.0] * 3)
        worst = max(worst, bent(make(*QKV), cloud, rng))
    return worst


def continuous(make) -> float:
    """The jump that is left of a segment that is cut in five again and again, to the part with the largest change."""
    worst = 0.0
    for cloud, QKV, x, _ in draws(count=2):
        field, a, b = make(*QKV), x[0], -x[0]
        size = np.abs(at(field, cloud)).max()
        for _ in range(16):
            queries = a + np.linspace(0, 1, N)[:, None] * (b - a)
            values = np.asarray(field(cloud, queries, s=np.ones(N)))
            jumps = np.linalg.norm(np.diff(values, axis=0), axis=1)
            a, b = queries[jumps.argmax()], queries[jumps.argmax() + 1]
        worst = max(worst, float(jumps.max() / size))
    return worst


def exchanged(cloud):
    """The first and the last token change places, with their weights: the same measure, but for positions."""
    order = [N - 1, *range(1, N - 1), 0]
    return changed(cloud, cloud.points[np.array(order)], cloud.weights[np.array(order)])


def lipschitz(make) -> float:
    """By how much the field at the positions of the tokens changes beyond the constant times W_1, as tokens are moved
    or exchanged, in units of the field; infinite if there is no constant.
    """
    worst = 0.0
    for cloud, (Q, K, V), x, rng in draws():
        field = make(Q, K, V)
        moved = changed(cloud, cloud.points + 0.01 * rng.normal(size=(N, D)))
        R = max(float(cloud.radius), float(moved.radius), float(np.linalg.norm(x, axis=1).max()))
        constants = mf.lipschitz_constants(field, R)
        if constants is None or constants.mu is None:
            return np.inf
        here = at(field, cloud, x)
        for other in (moved, exchanged(cloud)):
            change = np.linalg.norm(at(field, other, x) - here, axis=1).max()
            assert change > 0 or other is not moved
            excess = change - float(constants.mu) * mf.wasserstein(cloud, other, p=1)
            worst = max(worst, float(excess / np.abs(here).max()))
    return worst


def order(make) -> float:
    worst = 0.0
    for cloud, QKV, _, _ in draws():
        points = np.array(cloud.points)
        points[-1] += [1.0, -0.5]
        one, two = at(make(*QKV), cloud), at(make(*QKV), changed(cloud, points))
        worst = max(worst, float(np.abs(one - two)[:-1].max() / np.abs(one).max()))
    return worst


PROPERTIES = {
    "permutes": permutes,
    "measure": measure,
    "translation": translation,
    "scaling": homogeneous,
    "A": by_a_alone,
    "hull": hull,
    "radius": radius,
    "global": blow_up,
    "mean": mean,
    "affine": affine,
    "Gaussians": gaussians,
    "continuous": continuous,
    "Lipschitz": lipschitz,
    "order": order,
}


# The fields: two heads share V, half each, so that V is the matrix of values of the whole.


def two_heads(one: Make, two: Make) -> Make:
    return lambda Q, K, V: mf.MultiHead([one(Q, K, V), two(K, Q, V)], W=[0.5 * np.eye(D), 0.5 * np.eye(D)])


def masked(kind: Make) -> Make:
    return lambda Q, K, V: mf.Causal(kind(Q, K, V))


def counting(Q, K, V):
    return mf.Sigmoid(Q, K, V, per_token=True)


def matched(Q, K, V):
    return mf.L2(Q, Q, V)


def tokenwise(Q, K, V):
    return mf.Affine(V)


def crossed(Q, K, V):
    """Two heads that keep their hulls, with values V and J V."""
    J = np.array([[0.0, -1.0], [1.0, 0.0]])
    return mf.MultiHead([mf.Softmax(Q, K, V), mf.L2(K, Q, V)], W=[0.5 * np.eye(D), 0.5 * J])


# Pairs of heads that both have the property, and mixed pairs, for `if each`; few pairs, since each is compiled.
HEADS: dict[str, tuple[tuple[Make, Make], tuple[Make, Make]]] = {
    "measure": ((mf.Softmax, mf.L2), (mf.Softmax, counting)),
    "translation": ((tokenwise, matched), (mf.Softmax, matched)),
    "scaling": ((tokenwise, mf.Hardmax), (mf.Softmax, mf.Hardmax)),
    "A": ((mf.Softmax, mf.Linear), (mf.Softmax, mf.L2)),
    "radius": ((mf.Softmax, mf.L2), (mf.Softmax, mf.Linear)),
    "global": ((mf.Softmax, mf.L2), (mf.Softmax, mf.Linear)),
    "mean": ((tokenwise, KINDS["Sinkhorn"]), (tokenwise, mf.L2)),
    "affine": ((tokenwise, mf.Linear), (mf.Softmax, mf.Linear)),
    "Gaussians": ((mf.Softmax, mf.L2), (mf.Softmax, counting)),
    "continuous": ((mf.Softmax, mf.L2), (mf.Softmax, mf.Hardmax)),
    "Lipschitz": ((mf.Softmax, mf.L2), (mf.Softmax, mf.Hardmax)),
    "order": ((masked(mf.Softmax), masked(mf.L2)), (masked(mf.Softmax), mf.L2)),
}

# Fields with the property and without it, for `if field`.
FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "translation": (("Sinkhorn",), ("softmax", "linear")),
    "scaling": (("hardmax",), ("softmax", "linear")),
    "A": (("softmax", "linear", "hardmax"), ("L2",)),
    "hull": (("softmax", "L2", "hardmax"), ("linear",)),
    "radius": (("softmax", "L2", "sigmoid", "hardmax"), ("linear",)),
    "global": (("softmax", "L2", "sigmoid", "hardmax"), ("linear",)),
    "affine": (("linear",), ("softmax",)),
    "continuous": (("softmax", "L2", "sigmoid"), ("hardmax",)),
}


@cache
def matrix() -> dict[tuple[str, str], str]:
    """The cells of the page, by the bold word of their row and by their column."""
    lines = (DOCS / "attention" / "index.md").read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| property |"))
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:] if line.startswith("|")]
    assert tuple(table[0][1:]) == COLUMNS
    cells = {}
    for name, *row in table[2:]:
        (word,) = re.findall(r"\*\*(.+?)\*\*", name)
        assert len(row) == len(COLUMNS) and (word, COLUMNS[0]) not in cells
        cells |= {(word, column): cell for column, cell in zip(COLUMNS, row, strict=True)}
    return cells


def cases(row: str, column: str) -> tuple[list[float], list[float], str]:
    """The defects with a hypothesis, those without it, and the words of the page for it; all are the former if there is
    no hypothesis to be made.
    """
    defect = PROPERTIES[row]
    match row, column:
        case "permutes", "masked":
            return [permutes(masked(mf.Softmax))], [permutes(masked(mf.Softmax), travel=False)], "with s"
        case "measure", "masked":
            return [measure(masked(mf.Softmax))], [measure(masked(mf.Softmax), agree=False)], "one s"
        case "translation", "L2":
            return [translation(mf.L2, equal=True)], [translation(mf.L2)], "Q = K"
        case "hull", "sigmoid":
            return [hull(mf.Sigmoid, [(0.0, 0.0)])], [hull(mf.Sigmoid, [(4.0, 0.0)])], "0 in hull"
        case "hull", "heads":  # a head that does not keep its hull; heads of different values
            spoilt = [hull(two_heads(mf.Softmax, mf.Linear)), hull(crossed)]
            return [hull(two_heads(mf.Softmax, mf.L2))], spoilt, "one V"
        case "Gaussians", "masked":
            bends = [masked_gaussians(masked(KINDS[kind])) for kind in ("softmax", "L2")]
            return [masked_gaussians(masked(mf.Linear))], bends, "affine"
        case (("measure" | "radius" | "Lipschitz"), "sigmoid"):
            return [defect(mf.Sigmoid)], [defect(counting)], "averaged"
        case _, "sigmoid":
            return [defect(mf.Sigmoid), defect(counting)], [], ""
        case _, "heads" if row in HEADS:
            both, one = (defect(two_heads(*pair)) for pair in HEADS[row])
            return [both], [one], "each"
        case _, "heads":
            return [defect(two_heads(mf.Softmax, mf.L2))], [], ""
        case _, "masked" if row in FIELDS:
            fine, others = ([defect(masked(KINDS[kind])) for kind in kinds] for kinds in FIELDS[row])
            return fine, others, "field"
        case _, "masked":
            kinds = ("softmax", "L2", "Sinkhorn") if row == "mean" else ("softmax", "L2", "linear")
            return [defect(masked(KINDS[kind])) for kind in kinds], [], ""
        case _:
            return [defect(KINDS[column])], [], ""


NUMBERS = {8: "eight", 9: "nine", 10: "ten", 11: "eleven", 12: "twelve"}


def test_the_pages_say_how_many_kinds_there_are():
    """As many as have a row, a column and a page; the tour shows them all, in more scenes."""
    index = (DOCS / "attention" / "index.md").read_text(encoding="utf-8")
    pages = re.findall(r"^\| \[[^]]+\]\((\w+)\.md\) \|", index, re.MULTILINE)
    assert sorted(pages) == sorted({path.stem for path in DOCS.glob("attention/*.md")} - {"index", "blocks"})
    assert len({column for _, column in matrix()}) == len(pages)
    scenes = [case.attention.kind for _, case in read_experiment("tour").expanded()]
    assert len(set(scenes)) == len(pages)
    kinds, shown = NUMBERS[len(pages)], NUMBERS[len(scenes)]
    for page in (ROOT / "README.md", DOCS / "index.md", DOCS / "gallery.md"):
        text = page.read_text(encoding="utf-8")
        said = re.findall(
            r"(\w+) kinds of attention\]\((?:docs/)?img/tour|for (\w+) kinds of attention and those", text
        )
        assert {word for found in said for word in found if word} == {kinds}
        assert re.findall(r"in (\w+) scenes: ", text) == [shown]
    assert f"{kinds} kinds of attention" in read_experiment("tour").title


def test_the_matrix_has_the_properties_that_are_checked():
    rows = dict.fromkeys(row for row, _ in matrix())
    assert list(rows) == list(PROPERTIES)


@pytest.mark.parametrize(("row", "column"), [(row, column) for row in PROPERTIES for column in COLUMNS])
def test_cell(row, column):
    cell = matrix()[row, column]
    with_it, without, hypothesis = cases(row, column)
    if cell == "yes":
        assert max(with_it + without) <= HOLDS
    elif cell == "no":
        assert min(with_it + without) >= FAILS
    else:
        assert cell == f"if {hypothesis}"
        assert max(with_it) <= HOLDS and min(without) >= FAILS


def seen_at(cloud, s: float):
    """The law of the tokens that a query at position s sees."""
    weights = np.where(np.asarray(cloud.positions) <= s, cloud.weights, 0)
    return mf.PointCloud(cloud.points, weights / weights.sum())


@pytest.mark.parametrize("kind", ["softmax", "L2", "linear"])
def test_under_a_mask_the_constant_is_that_of_the_visible_tokens(kind):
    """What the page says of masked fields: the constant holds for the law that a query sees, at each position."""
    for cloud, (Q, K, V), x, rng in draws():
        field = masked(KINDS[kind])(Q, K, V)
        moved = changed(cloud, cloud.points + 0.01 * rng.normal(size=(N, D)))
        others = moved, exchanged(cloud)
        R = max(*(float(c.radius) for c in (cloud, moved)), float(np.linalg.norm(x, axis=1).max()))
        L = float(mf.lipschitz_constants(field, R).mu)
        for other in others:
            change = np.linalg.norm(at(field, other, x) - at(field, cloud, x), axis=1)
            seen = [mf.wasserstein(seen_at(cloud, s), seen_at(other, s), p=1) for s in np.asarray(cloud.positions)]
            assert (change <= L * np.array(seen) + 1e-12).all() and change.max() > 0


def test_under_a_mask_the_first_token_is_not_held_by_the_distance_of_the_measures():
    """Almost without logits, L_mu is almost 1: the first token moves by 0.01, and W_1 is a sixth of that."""
    I = np.eye(D)
    field, (cloud, *_) = masked(mf.Softmax)(0.01 * I, 0.01 * I, I), next(draws())
    cloud = changed(cloud, weights=np.full(N, 1 / N))
    other = changed(cloud, cloud.points + 0.01 * np.eye(N, D) * [1, 0])
    change = np.linalg.norm(at(field, other) - at(field, cloud), axis=1)
    L, distance = float(mf.lipschitz_constants(field, 3.0).mu), mf.wasserstein(cloud, other, p=1)
    np.testing.assert_allclose([change[0], distance], [0.01, 0.01 / N], rtol=1e-9)
    assert L < 1.01 and change[0] > 5.9 * L * distance
    # The conditional distance at p = 1 is no larger here, so that p > 1 and an average over positions are needed.
    np.testing.assert_allclose(mf.conditional_wasserstein(cloud, other, p=1), distance, rtol=1e-9)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_symmetric_derivatives_of_softmax_ask_for_values_of_the_transpose(d):
    """V C A = A^T C V^T for all symmetric C, a linear system for V: solved by V = c A^T alone if A has rank 2 or more,
    by a w^T for any w if A^T = a b^T, and by all V if A = 0.
    """
    rng = np.random.default_rng(d)
    units = np.eye(d * d).reshape(-1, d, d)
    symmetric = [C + C.T for C in units]
    for rank in range(d + 1):
        A = rng.normal(size=(d, rank)) @ rng.normal(size=(rank, d))
        defects = [np.ravel([V @ C @ A - (V @ C @ A).T for C in symmetric]) for V in units]
        _, sizes, rows = np.linalg.svd(np.array(defects).T)
        solutions = rows[sizes <= 1e-10]
        assert len(solutions) == {0: d * d, 1: d}.get(rank, 1)
        if rank == 1:  # all have the range of A^T
            stacked = np.concatenate([A.T, *solutions.reshape(-1, d, d)], axis=1)
            assert np.linalg.matrix_rank(stacked, tol=1e-9) == 1
        if rank > 1:
            alignment = abs(solutions[0] @ A.T.ravel()) / np.linalg.norm(A)
            assert alignment == pytest.approx(1, abs=1e-12)
    assert sizes.min() < 1e-10 < 1e-3 < np.sort(sizes)[1]  # full rank: a clear gap
