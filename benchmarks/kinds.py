"""Many heads, causal and Sinkhorn attention at n = 100 000, fast against exact."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

import meanformer as mf

from .fast import ACCURACY, error_on, extrapolated, identity_softmax, normal_tokens, random_rows
from .harness import Part, Table, first_call, ratio, ratio_text, seconds, side_by_side

N = 100_000
HEADS, D, K = 32, 64, 2


def many_heads() -> mf.MultiHead:
    """32 heads with keys and values of dimension 2, at d = 64, with random weights of the usual size."""
    rng = np.random.default_rng(0)
    Q, K_, V = (rng.standard_normal((HEADS, K, D)) / np.sqrt(D) for _ in range(3))
    W = rng.standard_normal((HEADS, D, K)) / np.sqrt(D)
    return mf.MultiHead([mf.Softmax(*QKV, tau=np.sqrt(K)) for QKV in zip(Q, K_, V, strict=True)], W=list(W))


def compare(part: Part, table: Table, name: str, field: mf.AbstractField, d: int, exact_size: int) -> None:
    """Fast at n = 100 000 against exact, which is extrapolated from `exact_size` tokens."""
    make = (lambda n: normal_tokens(n, d).with_positions()) if isinstance(field, mf.Causal) else normal_tokens_in(d)
    cloud, small = make(N), make(exact_size)
    plan, first = first_call(lambda: mf.plan(field, cloud, ACCURACY))
    calls = {
        "planned": lambda: mf.velocity(field, cloud, accuracy=plan),
        "asked": lambda: mf.velocity(field, cloud, accuracy=ACCURACY),
        "exact": lambda: mf.velocity(field, small),
    }
    timings = side_by_side(calls, 5)
    exact = extrapolated(timings["exact"], N, exact_size)
    error = error_on(field, cloud, np.asarray(calls["planned"]()), random_rows(N)[:500])
    row = [name, str(timings["planned"]), str(timings["asked"]), seconds(first), str(exact)]
    table.rows.append([*row, ratio_text(exact, timings["planned"]), f"{error:.1e}", plan.words])
    part.stated(f"{name}, n = {N:,}: exact / fast", f"{ratio(exact, timings['planned']):.3g} (error {error:.1e})")
    part.notes.append(f"{name}: exact times are extrapolated, as n^2, from {exact_size:,} tokens.")


def normal_tokens_in(d: int) -> Callable[[int], mf.PointCloud]:
    """Standard normal tokens in dimension `d`."""
    return lambda n: normal_tokens(n, d)


def sinkhorn_flow(part: Part, say: Callable[[str], None]) -> Table:
    """Seconds per velocity along a flow with fixed steps, each with a known number of velocities."""
    I = jnp.eye(2)
    field = mf.Sinkhorn(I, I, -I, tol=1e-6)
    head = ["flow", "first run, compiling", "run", "velocities", "s per velocity", "sums", "outcome"]
    table = Table(f"Sinkhorn attention along a flow, n = {N:,}, k = d = 2, accuracy {ACCURACY:g}, V = -I", head)
    cloud = normal_tokens(N, 2)
    steps, end = 10, 0.5
    options = {"solver": "euler", "step": end / steps, "accuracy": ACCURACY, "sample": 1_000, "save": 2}
    runs = []

    def flow() -> None:
        say("a Sinkhorn flow")
        runs[:] = [mf.flow(field, cloud, end, progress=False, **options)]

    timing = side_by_side({"flow": flow}, 5)["flow"]
    each = timing.median / steps
    row = [f"Euler, {steps} steps to t = {end:g}", seconds(timing.first), str(timing), str(steps), f"{each:.2f}"]
    table.rows.append([*row, str(runs[0].stats["sums"]), str(runs[0].outcome)])
    part.stated(f"Sinkhorn, n = {N:,}, k = 2: seconds per velocity along a flow", f"{each:.2f} s")
    return table


def measure(say: Callable[[str], None]) -> Part:
    """The three kinds."""
    part = Part("kinds", "Heads, causal and Sinkhorn attention at n = 100 000")
    head = ["field", "fast, planned once", "planned and checked at each call", "first plan, with compiling", "exact"]
    table = Table(f"Accuracy {ACCURACY:g}; medians (quartiles) of 5", [*head, "exact / planned once", "error", "plan"])
    say("causal")
    compare(part, table, "causal softmax, k = 2", mf.Causal(identity_softmax(2)), 2, 32_768)
    say("32 heads")
    compare(part, table, f"{HEADS} heads of k = {K} at d = {D}", many_heads(), D, 8_192)
    part.tables += [table, sinkhorn_flow(part, say)]
    return part
