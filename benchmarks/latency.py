"""The first result and the ones after it: fresh processes with an empty and a full store, loops, and repeated calls.

Each case is a short script in a process of its own, with all its imports: CPU seconds of the process, medians of 5,
with the same problem in plain diffrax beside them.
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .explorer import enter
from .harness import Part, Table
from .startup import INHERITED, REPEATS, spent

HEAD = """
import jax, jax.numpy as jnp, numpy as np
import meanformer as mf
I = jnp.eye(2)
tokens = mf.uniform_cube(d=2, low=-5, high=5).sample(40, key=jax.random.key(0))
"""
FAST = "many = mf.uniform_cube(d=2).sample({n}, key=jax.random.key(0))\n"
CASES = {
    "README tokens": "mf.flow(mf.Softmax(I, I, I), tokens, t1=8.0, frame=mf.Rescaled())",
    "softmax": "mf.flow(mf.Softmax(I, I, I), tokens, t1=1.0)",
    "causal": "mf.flow(mf.Causal(mf.Softmax(I, I, I)), tokens.with_positions(), t1=1.0)",
    "Sinkhorn": "mf.flow(mf.Sinkhorn(I, I, -I), tokens, t1=1.0)",
    "a Gaussian's fate": "mf.flow(mf.Softmax(I[:1], I[:1], I), mf.Gaussian(jnp.zeros(2), I), t1=jnp.inf)",
    "grad of a flow": (
        "jax.block_until_ready(jax.jit(jax.grad(lambda V: mf.flow(mf.Softmax(I, I, V), tokens, 1.0, save=2)"
        ".final.points.sum()))(I))"
    ),
    "fast softmax, n = 20,000": FAST.format(n=20_000) + "mf.flow(mf.Softmax(I, I, I), many, 0.2, accuracy=1e-6)",
    "fast Sinkhorn, n = 20,000": FAST.format(n=20_000) + "mf.flow(mf.Sinkhorn(I, I, -I), many, 0.2, accuracy=1e-6)",
    "fast Sinkhorn, n = 100,000": FAST.format(n=100_000) + "mf.flow(mf.Sinkhorn(I, I, -I), many, 0.2, accuracy=1e-6)",
}
README_RUN = ["-m", "meanformer", "run", "clusters", "--set", "d=2", "--set", "t1=8.0"]
LONG = tuple(name for name in CASES if "Sinkhorn, n" in name)
EYE = [[1.0, 0.0], [0.0, 1.0]]
EXPLORED = {
    "seed": 0,
    "attention": {"kind": "softmax", "Q": EYE, "K": EYE, "V": EYE},
    "measure": {"kind": "cube", "n": 40, "d": 2},
    "flow": {"t1": 1.0},
    "save": {"times": 51},
}
PATIENCE = 120.0

# The first two in plain diffrax; e^{tV} is e^t for V = I.
DIFFRAX = """
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp, diffrax
y0 = jax.random.uniform(jax.random.key(0), (40, 2), minval=-5.0, maxval=5.0)
def rescaled(t, z, args):
    x = jnp.exp(t) * z
    return jax.nn.softmax(x @ x.T, axis=1) @ z - z
def plain(t, x, args):
    return jax.nn.softmax(x @ x.T, axis=1) @ x
jax.block_until_ready(diffrax.diffeqsolve(
    diffrax.ODETerm({field}), diffrax.Tsit5(), 0.0, {t1}, 0.01, y0,
    saveat=diffrax.SaveAt(ts=jnp.linspace(0, {t1}, 101)),
    stepsize_controller=diffrax.PIDController(1e-6, 1e-9)).ys)
"""
PEERS = {
    "README tokens": DIFFRAX.format(field="rescaled", t1=8.0),
    "softmax": DIFFRAX.format(field="plain", t1=1.0),
}
COUNTED = """
import atexit, sys
import jax
found = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: found.append(1) if name.endswith("backend_compile_duration") else None)
atexit.register(lambda: print("compiled", len(found)))
"""
LOOPS = {
    "ten numbers of tokens, 40 to 60": (
        "mf.flow(mf.Softmax(I, I, I), tokens, t1=1.0)",
        "for n in (42, 44, 46, 48, 50, 52, 55, 58, 60):\n"
        "    mf.flow(mf.Softmax(I, I, I), mf.uniform_cube(d=2).sample(n, key=jax.random.key(n)), t1=1.0)",
    ),
    "twenty stop rules": (
        "mf.flow(mf.Softmax(I, I, I), tokens, t1=1.0, stop=lambda mu, t: mu.radius > 99.0)",
        "for level in np.linspace(100, 118, 19):\n"
        "    mf.flow(mf.Softmax(I, I, I), tokens, t1=1.0, stop=lambda mu, t: mu.radius > level)",
    ),
}
LOOP = """
import time
a = time.process_time()
{first}
b = time.process_time()
{others}
c = time.process_time()
print(b - a, c - b)
"""


def measure(say: Callable[[str], None]) -> Part:
    """All of it; an hour where nothing is stored."""
    part = Part("latency", "The first result, and the ones after it")
    part.tables.append(_first_results(part, say))
    part.tables.append(_first_frames(say))
    part.tables.append(_loops(part, say))
    part.tables.append(_repeated(part, say))
    return part


def _stored(folder: str) -> dict[str, str]:
    return {"MEANFORMER_CACHE": "1", "MEANFORMER_CACHE_DIR": folder}


def _first_results(part: Part, say: Callable[[str], None]) -> Table:
    head = ["case", "store empty", "store full", "plain diffrax", "programs compiled"]
    table = Table("CPU seconds of a fresh process with its imports; medians of 5 (of one, for the long ones)", head)
    for name, code in CASES.items():
        say(name)
        cold, warm, peer = [], [], []
        for _ in range(1 if name in LONG else REPEATS):
            with tempfile.TemporaryDirectory() as folder:
                cold.append(spent(["-c", HEAD + code], **_stored(folder))[1])
                warm.append(spent(["-c", HEAD + code], **_stored(folder))[1])
            if name in PEERS:
                peer.append(spent(["-c", PEERS[name]])[1])
        count = _compiled(HEAD, code)
        cells = [statistics.median(numbers) for numbers in (cold, warm)]
        against = statistics.median(peer) if peer else None
        row = [name, *(f"{cell:.2f}" for cell in cells), "" if against is None else f"{against:.2f}", str(count)]
        table.rows.append(row)
        if name == "README tokens" and against is not None:
            part.at_most("README tokens, store empty, against plain diffrax", cells[0] / against, 1.5)
            part.at_most("README tokens, store full, against plain diffrax", cells[1] / against, 0.5)
            part.at_most("README tokens, programs compiled", count, 6)
    say("meanformer run")
    seconds = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            runs = (spent([*README_RUN, "--out", f"{folder}/{name}"], **_stored(folder)) for name in ("cold", "warm"))
            seconds.append([cpu for _, cpu in runs])
    table.rows.append(["`meanformer run`, README", *(f"{cell:.2f}" for cell in np.median(seconds, axis=0)), "", ""])
    return table


def _first_frames(say: Callable[[str], None]) -> Table:
    """What somebody waits for who starts the explorer."""
    head = ["store", "the address is printed", "the start arrives", "the first frames arrive"]
    title = "Seconds from the start of `meanformer explore`, whose page asks for a run of 40 tokens; medians of 5"
    table, found = Table(title, head), {"empty": [], "full": []}
    for turn in range(REPEATS):
        say(f"explorer, {turn + 1} of {REPEATS}")
        with tempfile.TemporaryDirectory() as folder:
            for times in found.values():
                times.append(_explored(folder))
    for name, times in found.items():
        table.rows.append([name, *(f"{number:.2f}" for number in np.median(times, axis=0))])
    return table


def _explored(folder: str) -> list[float]:
    began = time.perf_counter()
    command = [sys.executable, "-u", "-m", "meanformer", "explore", "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, cwd=folder, env=INHERITED | _stored(folder), stdout=subprocess.PIPE, text=True)
    try:
        printed = next((found for line in server.stdout or () if (found := re.search(r"http://\S+", line))), None)
        if printed is None:
            raise RuntimeError(f"the explorer ended with exit code {server.wait()}")
        seconds = [time.perf_counter() - began]
        with enter(printed[0]).connect() as page:
            page.send(json.dumps({"do": "run", "slot": "main", "run": 1, "experiment": EXPLORED}))
            for awaited in ("start", "frames"):
                while (said := _said(page.recv(PATIENCE))) != awaited:
                    if said in ("refused", "failed"):
                        raise RuntimeError(f"the explorer {said} the run")
                seconds.append(time.perf_counter() - began)
        return seconds
    finally:
        server.terminate()
        server.wait()


def _said(message: Any) -> str:
    from meanformer.app.protocol import unpack

    return (unpack(message)[0] if isinstance(message, bytes) else json.loads(message))["say"]


def _compiled(head: str, code: str) -> int:
    """How many programs a script compiles after its head, which has operations of the user's own; without a store."""
    command = [sys.executable, "-c", head + COUNTED + code]
    done = subprocess.run(
        command, env=INHERITED | {"MEANFORMER_CACHE": "0"}, capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[-1])


def _loops(part: Part, say: Callable[[str], None]) -> Table:
    table = Table("CPU seconds in one process, without a store; medians of 5", ["loop", "the first", "all", "ratio"])
    for name, (first, others) in LOOPS.items():
        say(name)
        found = []
        for _ in range(REPEATS):
            command = [sys.executable, "-c", HEAD + LOOP.format(first=first, others=others)]
            done = subprocess.run(
                command, env=INHERITED | {"MEANFORMER_CACHE": "0"}, capture_output=True, text=True, check=True
            )
            found.append([float(number) for number in done.stdout.split()])
        one, rest = np.median(found, axis=0)
        table.rows.append([name, f"{one:.2f}", f"{one + rest:.2f}", f"{(one + rest) / one:.2f}"])
        part.at_most(f"{name}: all against the first", (one + rest) / one, 2.0)
    return table


def _repeated(part: Part, say: Callable[[str], None]) -> Table:
    """Repeated calls against NumPy and SciPy, at equal tolerances and save times."""
    from scipy.integrate import solve_ivp

    import meanformer as mf

    head = ["n", "`mf.flow`, ms", "NumPy and `solve_ivp`, ms", "ratio"]
    table = Table("CPU milliseconds of a repeated call; medians of 15, in turn", head)
    field, rng = mf.Softmax(np.eye(2), np.eye(2), np.eye(2)), np.random.default_rng(0)
    for n in (40, 200, 1000):
        say(f"repeated calls, n = {n}")
        start = rng.uniform(-1, 1, (n, 2))
        tokens, times = mf.PointCloud(start), np.linspace(0, 1, 101)

        def velocity(t: float, y: np.ndarray, n: int = n) -> np.ndarray:
            x = y.reshape(n, 2)
            logits = x @ x.T
            weights = np.exp(logits - logits.max(1, keepdims=True))
            return ((weights @ x) / weights.sum(1, keepdims=True)).ravel()

        def theirs(start: np.ndarray = start, velocity: Callable = velocity, times: np.ndarray = times) -> None:
            solve_ivp(velocity, (0, 1), start.ravel(), method="RK45", rtol=1e-6, atol=1e-9, t_eval=times)

        def ours(tokens: mf.PointCloud = tokens) -> None:
            mf.flow(field, tokens, 1.0)

        seconds: dict[Callable[[], None], list[float]] = {ours: [], theirs: []}
        for call in seconds:
            call()
        for _ in range(15):
            for call, found in seconds.items():
                began = time.process_time()
                call()
                found.append(time.process_time() - began)
        a, b = (1e3 * statistics.median(found) for found in seconds.values())
        table.rows.append([str(n), f"{a:.2f}", f"{b:.2f}", f"{a / b:.2f}"])
        part.at_most(f"repeated flow, n = {n}, against NumPy and solve_ivp", a / b, 1.0)
    return table
