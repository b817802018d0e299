"""Exact attention at n = 8192 tokens, against torch, KeOps, NumPy and a loop written by hand; growth in n."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import meanformer as mf
from meanformer.reduce.exact import Average, Tokens, dot, fold_tokens

from . import native
from .harness import Part, Table, growth, installed, ratio, ratio_text, seconds, side_by_side

N = 8192
DIMENSIONS = (2, 3, 8, 64)
DTYPES = ("float32", "float64")
# What was asked of the ratio torch / ours.
FLOORS = {("float32", 2): 1.8, ("float32", 3): 1.8, ("float64", 2): 1.3, ("float64", 3): 1.3, ("float64", 8): 1.3}
LOOP_SHARE = 0.8
# Beyond this dimension KeOps on a CPU takes some twenty seconds a call.
KEOPS_LIMIT = 8
ROWS = 1024
SIZES = (4096, 8192, 16384, 32768)


def tokens_of(n: int, k: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Standard normal tokens."""
    return np.random.default_rng(seed).standard_normal((n, k)).astype(dtype)


def temperature(k: int) -> float:
    r"""$\sqrt k$ as in networks, from $k=8$ on; 1 in the plane and in space, as the theory has it."""
    return float(np.sqrt(k)) if k >= 8 else 1.0


def velocity(x: np.ndarray) -> Callable[[], Any]:
    """What a user writes: `mf.velocity(field, tokens)`, checks of the input included."""
    I = jnp.eye(x.shape[1], dtype=x.dtype)
    field, tokens = mf.Softmax(I, I, I, tau=jnp.asarray(temperature(x.shape[1]), x.dtype)), mf.PointCloud(x)
    return lambda: mf.velocity(field, tokens)


def bare_fold(x: np.ndarray) -> Callable[[], Any]:
    """The sum alone: `fold_tokens`, compiled, on queries, keys and values as they are."""
    points = jnp.asarray(x)
    queries = points / jnp.asarray(temperature(x.shape[1]), x.dtype)
    tokens = Tokens(points, jnp.full(len(x), -np.log(len(x)), x.dtype), points)
    fold = jax.jit(lambda q, t: fold_tokens(Average(), dot, q, t)[0])
    return lambda: fold(queries, tokens)


def in_numpy(x: np.ndarray) -> Callable[[], np.ndarray]:
    """Rows in blocks, which is kind to the cache: what one writes without any library."""
    root = x.dtype.type(temperature(x.shape[1]))

    def call() -> np.ndarray:
        out = np.empty_like(x)
        for i in range(0, len(x), ROWS):
            logits = (x[i : i + ROWS] / root) @ x.T
            logits -= logits.max(axis=1, keepdims=True)
            np.exp(logits, out=logits)
            out[i : i + ROWS] = logits @ x / logits.sum(axis=1, keepdims=True)
        return out

    return call


def in_torch(x: np.ndarray) -> Callable[[], Any]:
    """`scaled_dot_product_attention`, without projections."""
    import torch

    points = torch.from_numpy(x)[None, None]
    scale = 1 / temperature(x.shape[1])
    attention = torch.nn.functional.scaled_dot_product_attention
    return lambda: attention(points, points, points, scale=scale)[0, 0].numpy()


def in_keops(x: np.ndarray) -> Callable[[], Any]:
    """A symbolic matrix of KeOps, which compiles a loop for the formula."""
    import torch
    from pykeops.torch import LazyTensor

    points = torch.from_numpy(x)
    queries = points / temperature(x.shape[1])

    def call() -> Any:
        logits = (LazyTensor(queries[:, None, :]) * LazyTensor(points[None, :, :])).sum(-1)
        return logits.sumsoftmaxweight(LazyTensor(points[None, :, :]), axis=1).numpy()

    return call


def contestants_for(x: np.ndarray, library: Any) -> dict[str, Callable[[], Any]]:
    """All that is installed here."""
    found = {"ours": velocity(x), "fold": bare_fold(x)}
    if installed("torch"):
        found["torch"] = in_torch(x)
    if installed("torch", "pykeops") and x.shape[1] <= KEOPS_LIMIT:
        found["keops"] = in_keops(x)
    found["numpy"] = in_numpy(x)
    if library is not None and x.shape[1] == 2:
        found["loop"] = native.attention(library, x)
    return found


def worst_error(x: np.ndarray, result: Any, rows: int = 200) -> float:
    """The largest error on some rows against float64, relative to the largest value."""
    y, root = x.astype(float), temperature(x.shape[1])
    logits = y[:rows] @ y.T / root
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    exact = p @ y / p.sum(axis=1, keepdims=True)
    return float(np.abs(np.asarray(result)[:rows] - exact).max() / np.abs(exact).max())


def compare(part: Part, say: Callable[[str], None], n: int = N, repeats: int = 7) -> None:
    """The table of seconds, its errors, and the ratios asked for."""
    library = native.compiled_loop()
    if library is None:
        part.notes.append("No C compiler that takes `simd.c` was found: the loop by hand is left out.")
    names = {
        "ours": "`mf.velocity`",
        "fold": "`fold_tokens`",
        "torch": "torch SDPA",
        "keops": "KeOps",
        "numpy": "NumPy",
        "loop": "loop by hand",
    }
    head = ["dtype", "k = d", "programme", "run", "first call less run", "G pairs/s", "ours is faster by", "error"]
    times = Table(f"n = {n}, standard normal tokens, Q = K = V = I; medians (quartiles) of {repeats}", head)
    for dtype in DTYPES:
        for k in DIMENSIONS:
            say(f"{dtype}, k = {k}")
            x = tokens_of(n, k, dtype)
            contestants = contestants_for(x, library)
            timings = side_by_side(contestants, repeats)
            for name, timing in timings.items():
                error = worst_error(x, contestants[name]())
                speed = n * n / timing.median / 1e9
                against = "" if name == "ours" else ratio_text(timing, timings["ours"])
                compiling = seconds(timing.compiling)
                row = [dtype, str(k), names[name], str(timing), compiling, f"{speed:.3g}", against, f"{error:.1e}"]
                times.rows.append(row)
            if "torch" in timings:
                floor = FLOORS.get((dtype, k), 1.0)
                part.at_least(
                    f"exact, {dtype}, k = d = {k}: torch SDPA / ours", ratio(timings["torch"], timings["ours"]), floor
                )
            if "loop" in timings:
                share = ratio(timings["loop"], timings["ours"])
                part.at_least(f"exact, {dtype}, k = 2: share of the speed of a loop by hand", share, LOOP_SHARE)
    part.tables.append(times)


def grow(part: Part, say: Callable[[str], None], repeats: int = 5) -> None:
    """Growth of the exact path in n: 2 is what it must be."""
    table = Table("Growth of the exact path in n (k = d = 2)", ["dtype", "n", "run", "exponent to the next n"])
    for dtype in DTYPES:
        say(f"growth, {dtype}")
        calls = {str(n): velocity(tokens_of(n, 2, dtype)) for n in SIZES}
        timings = side_by_side(calls, repeats)
        exponents = growth(list(SIZES), [timings[str(n)].median for n in SIZES])
        for n, exponent in zip(SIZES, [*(f"{e:.2f}" for e in exponents), ""], strict=True):
            table.rows.append([dtype, str(n), str(timings[str(n)]), exponent])
        part.stated(f"exact, {dtype}, k = 2: growth exponent from {SIZES[0]} to {SIZES[-1]}", f"{exponents[-1]:.2f}")
    part.tables.append(table)


def measure(say: Callable[[str], None]) -> Part:
    """All of it."""
    part = Part("exact", "Exact attention")
    part.notes.append(f"KeOps is left out beyond k = {KEOPS_LIMIT}: on a CPU a call then takes some twenty seconds.")
    missing = [name for name in ("torch", "pykeops") if not installed(name)]
    if missing:
        part.notes.append(f"Not installed, so left out: {', '.join(missing)}.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the other libraries, about threads and compilers
        compare(part, say)
    grow(part, say)
    return part
