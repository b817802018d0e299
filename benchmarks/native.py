"""The loop of simd.c, compiled with the system's compiler when it is first used."""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).with_name("simd.c")
FLAGS = ["-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-funroll-loops", "-fopenmp", "-shared"]
# Shifted logits lie in [-2 |q| max|y|, 0]; exp as it is made there must not leave the normal numbers.
RANGE = {"float32": 80.0, "float64": 700.0}


def compiler() -> str | None:
    """The system's C compiler, if there is one."""
    return next((found for name in ("gcc", "cc", "clang") if (found := shutil.which(name))), None)


def compiled_loop() -> ctypes.CDLL | None:
    """simd.c as a library; None without a compiler that takes it."""
    command = compiler()
    if command is None:
        return None
    folder = tempfile.mkdtemp()
    try:
        target = Path(folder) / "simd.so"
        done = subprocess.run([command, *FLAGS, "-fPIC", str(SOURCE), "-o", str(target), "-lm"], capture_output=True)
        return ctypes.CDLL(str(target)) if done.returncode == 0 else None
    finally:
        shutil.rmtree(folder)


def attention(library: ctypes.CDLL, points: np.ndarray) -> Callable[[], np.ndarray]:
    r"""Softmax attention with $Q=K=V=I$ at the `points`, shape `(n, 2)`, as a call without arguments."""
    n, k = points.shape
    squares = (points.astype(float) ** 2).sum(axis=1)
    if k != 2 or n % 16 or 2 * squares.max() > RANGE[points.dtype.name]:
        raise ValueError(f"the loop takes (16 m, 2) points of small norm, got {points.shape}")
    loop = library.attention_float if points.dtype == np.float32 else library.attention_double
    loop.restype = None
    q, y1, y2 = (np.ascontiguousarray(a) for a in (points, points[:, 0], points[:, 1]))
    out = np.empty_like(points)

    def call() -> np.ndarray:
        loop(ctypes.c_long(n), *(a.ctypes.data_as(ctypes.c_void_p) for a in (q, y1, y2, out)))
        return out

    return call
