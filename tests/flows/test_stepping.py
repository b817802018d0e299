"""The program of runs on the host: its methods against diffrax, its orders, and the padding that nobody sees."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _cases import cloud, weights

import meanformer as mf
from meanformer._programs.call import Program
from meanformer.flows.frames import ORIGINAL
from meanformer.flows.journal import AbstractJournal
from meanformer.flows.methods import TABLES, Known, Rosenbrock, RungeKutta
from meanformer.flows.observe import Observer
from meanformer.flows.padding import padded_size
from meanformer.flows.particles import ParticleSystem
from meanformer.flows.stepping import Asked, Control, Span, advance

Q, K, V = weights(70)
FIELD = mf.Softmax(Q, K, V)
TOKENS = cloud(70)


def compiled() -> int:
    """How many programs of the stepping loop are in memory."""
    assert isinstance(advance, Program)
    return len(advance._compiled)


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_those_of_diffrax(name: str) -> None:
    ours, solver = TABLES[name], {"tsit5": diffrax.Tsit5, "euler": diffrax.Euler}[name]()
    np.testing.assert_allclose(ours.inside.sum(1), ours.b, atol=1e-13)  # the last state inside is the one after
    if name == "euler":
        return
    table = solver.tableau
    for row, theirs in zip(ours.a[1:], table.a_lower, strict=True):
        np.testing.assert_allclose(row[: len(theirs)], theirs, rtol=1e-14)
    np.testing.assert_allclose(ours.c[1:], table.c, rtol=1e-14)
    np.testing.assert_allclose(ours.b, table.b_sol, rtol=1e-14)
    np.testing.assert_allclose(ours.error, table.b_error, rtol=1e-12)
    # Inside a step: what diffrax gives for one stage at a time.
    for share in (0.1, 0.5, 0.8):
        there = solver.interpolation_cls(
            t0=jnp.asarray(0.0), t1=jnp.asarray(1.0), y0=jnp.zeros(7), y1=jnp.zeros(7), k=jnp.eye(7)
        ).evaluate(jnp.asarray(share))
        np.testing.assert_allclose(ours.inside @ share ** np.arange(1, 5), there, atol=1e-13)


@pytest.mark.parametrize("options", [{}, {"step": 0.05}], ids=["error control", "constant step"])
def test_tokens_step_as_with_diffrax(options: dict) -> None:
    ours = mf.flow(FIELD, TOKENS, 2.0, save=9, **options)
    theirs = mf.flow(FIELD, TOKENS, 2.0, save=9, solver=diffrax.Tsit5(), **options)
    # With error control a step may differ by rounding: then the two agree to tolerance.
    np.testing.assert_allclose(ours.points, theirs.points, rtol=0, atol=1e-5 if not options else 1e-13)
    if options:
        assert ours.stats["steps"] == theirs.stats["steps"]
    exact = mf.flow(FIELD, TOKENS, 2.0, save=9, rtol=1e-12, atol=1e-13)
    worst = [float(jnp.abs(run.points - exact.points).max()) for run in (ours, theirs)]
    assert worst[0] <= max(1.5 * worst[1], 1e-12)


def test_gaussians_step_as_with_diffrax() -> None:
    from meanformer.flows.diffrax_solvers import Rodas5P

    start = mf.Gaussian(np.ones(3), np.diag([1.0, 0.5, 2.0]))
    ours, theirs = (mf.flow(mf.L2(Q, K, V), start, 1.0, save=9, solver=s) for s in (None, Rodas5P()))
    assert ours.stats["solver"] == "rodas5p" and ours.stats["steps"] == theirs.stats["steps"]
    for a, b in zip(ours.saved, theirs.saved, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "method, order, inside", [(RungeKutta("euler"), 1, 1), (RungeKutta("tsit5"), 5, 4), (Rosenbrock(), 5, 4)]
)
def test_orders(method, order: int, inside: int) -> None:
    # y' = y (1 + cos t) has the solution exp(t + sin t); one step has an error of one order more.
    def error(h: float, share: float) -> float:
        t = jnp.asarray(0.3)
        known = Known(jnp.asarray([1 + jnp.cos(t)]), None)

        def velocity(t, y, watch):
            return y * (1 + jnp.cos(t)), watch

        step = method.step(velocity, t, jnp.ones(1), jnp.asarray(h), known, jnp.asarray(False))
        end = 0.3 + share * h
        exact = np.exp(end + np.sin(end) - 0.3 - np.sin(0.3))
        found = step.y if share == 1 else step.inside(jnp.asarray(share))
        return abs(float(found[0]) - exact)

    for share, expected in ((1.0, order), (0.4, inside)):
        errors = [error(h, share) for h in (0.4, 0.2)]
        assert np.log2(errors[0] / errors[1]) > expected + 0.7, (share, errors)


def test_sizes_are_few_and_not_much_larger() -> None:
    sizes = np.array([padded_size(n) for n in range(1, 5000)])
    assert (sizes >= np.arange(1, 5000)).all() and len(set(sizes)) < 35
    assert (np.diff(sizes) >= 0).all() and {padded_size(n) for n in range(40, 61)} == {48, 64}
    assert (sizes[32:] <= 1.5 * np.arange(33, 5000)).all()
    assert (sizes[64:] <= 1.25 * np.arange(65, 5000)).all()


FIELDS = {
    "softmax": mf.Softmax(Q, K, V),
    "l2": mf.L2(Q, K, V),
    "sinkhorn": mf.Sinkhorn(Q, K, V),
    "sigmoid": mf.Sigmoid(Q, K, V),
    "heads": mf.MultiHead([mf.Softmax(Q, K, V), mf.Linear(K, Q, -V)]),
    "causal": mf.Causal(mf.Softmax(Q, K, V)),
}


@pytest.mark.parametrize("kind", FIELDS)
def test_padding_is_not_seen(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = cloud(71).with_positions(np.random.default_rng(0).permutation(10) / 10)
    wide = mf.flow(FIELDS[kind], tokens, 1.0)
    monkeypatch.setattr("meanformer.flows.run.padded", lambda system, t0, asked: system)
    narrow = mf.flow(FIELDS[kind], tokens, 1.0)
    assert wide.points.shape == narrow.points.shape == (101, 10, 3)
    assert {**wide.stats, "seconds": 0, "sinkhorn_error": 0} == {**narrow.stats, "seconds": 0, "sinkhorn_error": 0}
    np.testing.assert_allclose(wide.points, narrow.points, rtol=0, atol=1e-11)


@pytest.mark.parametrize("options", [{"space": mf.Sphere()}, {"frame": mf.Rescaled()}, {"sample": 4}], ids=str)
def test_padding_is_not_seen_in_spaces_frames_and_samples(options, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = cloud(72).push(mf.Sphere().retract)
    stop = [mf.Stationary(1e-9), mf.RadiusAbove(1e3)]
    wide = mf.flow(FIELD, tokens, 1.0, stop=stop, **options)
    monkeypatch.setattr("meanformer.flows.run.padded", lambda system, t0, asked: system)
    narrow = mf.flow(FIELD, tokens, 1.0, stop=stop, **options)
    leaves = (jax.tree.leaves((run.saved, run.statistics)) for run in (wide, narrow))
    for a, b in zip(*leaves, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11)


def test_functions_of_the_user_see_the_tokens_and_no_more() -> None:
    seen = []

    def rule(mu, t):
        seen.append(mu.n)
        return mu.points.mean() > 1e9

    run = mf.flow(FIELD, TOKENS, 1.0, stop=rule, observers={"plain": lambda mu, t: mu.points.mean(0)})
    assert set(seen) == {10}
    np.testing.assert_allclose(run.statistics["plain"], run.points.mean(1), rtol=1e-12)


def test_numbers_of_tokens_share_a_program() -> None:
    tokens = mf.PointCloud(np.random.default_rng(1).normal(size=(60, 3)))
    mf.flow(FIELD, tokens, 0.1)
    before = compiled()
    for n in (50, 57, 59, 64):
        run = mf.flow(FIELD, mf.PointCloud(np.random.default_rng(n).normal(size=(n, 3))), 0.1)
        assert run.points.shape == (101, n, 3)
    mf.flow(FIELD, tokens, 0.1, save=77)  # as do numbers of save times
    assert compiled() == before
    mf.flow(FIELD, mf.PointCloud(np.ones((65, 3))), 0.1)  # the count does count
    assert compiled() == before + 1


def test_rules_with_the_same_code_share_a_program() -> None:
    def run(level: float) -> mf.Trajectory:
        return mf.flow(FIELD, TOKENS, 1.0, stop=lambda mu, t: mu.radius > level)

    run(1e3)
    before = compiled()
    ends = [run(level).outcome.kind for level in (1e4, 1e5, 1e-3)]
    assert compiled() == before and ends == ["REACHED", "REACHED", "STOPPED"]


def test_steps_of_float32_fill_the_time_and_no_more() -> None:
    start = mf.PointCloud(np.ones((2, 1), np.float32))
    for step, count in ((0.01, 100), (0.02, 50), (0.25, 4)):
        run = mf.flow(mf.Affine(np.eye(1, dtype=np.float32)), start, 1.0, solver="euler", step=step, save=2)
        assert run.times.dtype == np.float32 and run.stats["steps"] == count
        assert float(run.final.points[0, 0]) == pytest.approx((1 + step) ** count, rel=1e-4)


def test_a_velocity_that_is_no_number_leaves_the_state() -> None:
    """A root of a negative number in the middle of a run: the last state is that of the last good step."""
    field = mf.Scheduled(lambda t: mf.Affine(jnp.sqrt(0.5 - t) * jnp.eye(1)))
    run = mf.flow(field, mf.PointCloud(np.ones((2, 1))), 1.0, save=2)
    assert run.outcome.kind in ("NOT_FINITE", "STEP_TOO_SMALL") and 0.3 < float(run.outcome.time) <= 0.5
    exact = np.exp((0.5**1.5 - (0.5 - float(run.outcome.time)) ** 1.5) * 2 / 3)
    np.testing.assert_allclose(run.final.points[0, 0], exact, rtol=1e-5)
    # A segment that begins there ends with the state that it was given.
    system = ParticleSystem(field, mf.PointCloud(np.ones((2, 1))), mf.Euclidean(), ORIGINAL)
    now, end, rtol, atol = (jnp.asarray(number) for number in (0.6, 1.0, 1e-6, 1e-9))
    span = Span(now, end, jnp.asarray(0.01), jnp.asarray(64), jnp.asarray([0.6, 1.0]), jnp.asarray(0))
    asked = Asked((), Observer(None, {}), False)
    segment = advance(system, RungeKutta("tsit5"), Control(rtol, atol, None), asked, system.start(), span)
    assert segment.ending == mf.Ending.NOT_FINITE and segment.t == now and (segment.y == 1).all()


def test_rows_of_segments_do_not_keep_each_other() -> None:
    """A run of many segments holds the rows that it saved, and not the room for all rows once for each segment."""
    kept = []

    class Journal(AbstractJournal):
        def begin(self, verb, field, measure, options):
            return None

        def resume(self, shell, state, row=None):
            return None

        def keep(self, rows, state, note):
            kept.extend(rows)

        def finish(self, run):
            pass

    mf.flow(FIELD, cloud(5), 1.0, solver="euler", step=1e-3, journal=Journal())
    blocks = {id(block): block for block in (row[0][0].base for _, row in kept) if block is not None}
    assert len(kept) == 101 and sum(block.nbytes for block in blocks.values()) < 3 * 101 * kept[0][1][0][0].nbytes


class Turning(mf.AbstractField):
    """A kind of a user that depends on time, and does not say so."""

    Q: jax.Array

    def at(self, t):
        return mf.Softmax(self.Q, self.Q, jnp.cos(3 * t) * jnp.eye(3))

    def evaluate(self, mu, x, t, view):
        return self.at(t).evaluate(mu, x, t, view)

    def terms(self, t):
        return self.at(t).terms(t)


def test_the_rescaled_frame_of_a_field_that_moves() -> None:
    plain = mf.flow(Turning(jnp.eye(3)), cloud(6), 1.0, rtol=1e-9)
    frame = mf.flow(Turning(jnp.eye(3)), cloud(6), 1.0, rtol=1e-9, frame=mf.Rescaled()).original()
    np.testing.assert_allclose(frame.final.points, plain.final.points, atol=1e-7)


class Drift(mf.AbstractField):
    """A kind of a user that gives one velocity for all tokens, always in float64."""

    speed: jax.Array

    def evaluate(self, mu, x, t, view):
        return self.speed.astype(jnp.float64) * jnp.asarray([[1.0, 2.0]], jnp.float64)

    def terms(self, t):
        return ()


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize("solver", ["tsit5", "euler", "rodas5p"])
def test_one_velocity_for_all_tokens_moves_all_of_them(solver, dtype) -> None:
    tokens = mf.PointCloud(jnp.zeros((3, 2), dtype))
    run = mf.flow(Drift(jnp.ones((), dtype)), tokens, 1.0, solver=solver, step=0.1 if solver == "euler" else None)
    assert run.points.dtype == dtype
    rough = solver == "rodas5p" and dtype == jnp.float32  # its linear systems in float32: the tolerance of the run
    tolerance = 1e-4 if rough else 1e-6
    np.testing.assert_allclose(run.final.points, np.tile([1.0, 2.0], (3, 1)), rtol=tolerance)
