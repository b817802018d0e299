"""What closed forms take: known values, as float64 arrays of NumPy."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from .._scale import norm
from ..measures.gaussian import Gaussian

SMALLER = "scale the matrices or the Gaussian down: their product must be finite"


def known(array: Any, name: str) -> np.ndarray:
    """The values of an array, which must not be traced."""
    if not checks.known(array):
        checks.refuse(
            f"{name} must be known",
            got="a traced array, inside jit, vmap or grad",
            expected="numbers: closed forms are computed on the host",
            remedy="call it outside, on the values; a flow can be traced",
        )
    return np.asarray(array, np.float64)


def unit(*values: Any) -> float:
    """The unit round-off of the least precise of `values`."""
    return max(float(jnp.finfo(checks.to_array(value, "value").dtype).eps) for value in values)


def matrix(value: Any, name: str, columns: int, rows: int | None = None) -> np.ndarray:
    """A matrix of `columns` columns, and `rows` rows if given."""
    array = known(checks.matrix(value, name), name)
    if array.shape[1] != columns or (rows is not None and array.shape[0] != rows):
        expected = f"({'k' if rows is None else rows}, {columns})"
        checks.refuse(
            f"{name} must match the Gaussian",
            got=f"{name} of shape {array.shape} in dimension {columns}",
            expected=f"shape {expected}",
            remedy=f"give {name} as many columns as the Gaussian has dimensions",
        )
    return array


def differ(M: np.ndarray, other: np.ndarray, unit: float, size: float | None = None) -> bool:
    """Whether two matrices differ by more than rounding does, relative to `size` (by default, that of the first)."""
    return bool(norm(M - other) > 1e4 * unit * (norm(M) if size is None else size))


def number(value: Any, name: str) -> float:
    """One finite number."""
    return float(known(checks.scalar(value, name), name))


def scaling(value: Any, name: str, d: int) -> np.ndarray:
    """A square matrix, or a number that stands for as much of the identity."""
    array = known(checks.finite(checks.to_array(value, name, "a number or a matrix"), name), name)
    return float(array) * np.eye(d) if array.ndim == 0 else matrix(value, name, d, d)


def temperature(value: Any, name: str) -> float:
    """One positive number."""
    remedy = f"{name} divides the exponent; 1 is the default, networks use sqrt(k)"
    return float(known(checks.positive(value, name, remedy), name))


def not_negative(array: np.ndarray, name: str, remedy: str) -> np.ndarray:
    """Refuse values below zero."""
    if array.size and array.min() < 0:
        got = f"{name} = {array.min():g}"
        checks.refuse(f"{name} must not be negative", got=got, expected=f"{name} >= 0", remedy=remedy)
    return array


def times(value: Any) -> np.ndarray:
    """One time, or a vector of times."""
    array = checks.to_array(value, "t", "a time")
    array = known(checks.vector(array, "t") if array.ndim else checks.scalar(array, "t"), "t")
    return not_negative(array, "t", "the flow backward in time is the flow of -V")


def moments(gaussian: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and factor of a single Gaussian."""
    if not isinstance(gaussian, Gaussian) or gaussian.mean.ndim > 1:
        batch = f"a batch of shape {gaussian.mean.shape[:-1]}" if isinstance(gaussian, Gaussian) else None
        checks.refuse(
            "the initial measure must be a single Gaussian",
            got=batch or checks.described(gaussian),
            expected="a Gaussian with a mean of shape (d,)",
            remedy="index the batch" if batch else "mf.Gaussian(mean, cov=Sigma), or factor=L",
        )
    return known(gaussian.mean, "mean"), known(gaussian.factor, "factor")


def before(t: np.ndarray, time: float) -> None:
    """Refuse times at or after the blow-up."""
    if t.size and t.max() >= time:
        checks.refuse(
            "t must be before the blow-up",
            got=f"t = {t.max():.6g}",
            expected=f"t < {time:.10g}, when the covariance is infinite",
            remedy="ask for earlier times",
        )


def top_eigenvalue(M: np.ndarray, noise: np.ndarray, size: np.ndarray) -> float:
    r"""The largest eigenvalue of $DMD$, $D=\mathrm{diag}(\text{size})$, for symmetric $M$ with entries known up to
    `noise`; 0 if it is not positive, or cannot be told from 0.
    """
    # Whether it is positive does not depend on D: that is seen best where the noise is about one everywhere.
    balance = np.ones(len(M))
    for _ in range(4):
        rows = (balance[:, None] * noise * balance).max(axis=1)
        balance = balance / np.sqrt(np.where(rows > 0, rows, 1))
    if not np.linalg.eigvalsh(balance[:, None] * M * balance)[-1] > norm(balance[:, None] * noise * balance):
        return 0.0
    M, noise, lost = size[:, None] * M * size, size[:, None] * noise * size, 0.0
    # Directions that are strongly negative are taken out first: the rest keeps its digits, however small it is.
    while len(M):
        values, W = np.linalg.eigh(M)
        out = values < -1e-8 * np.abs(values).max()
        if not out.any():
            break
        U, W = W[:, out], W[:, ~out]
        lost += float(norm(U.T @ M @ W)) ** 2 / -values[out].max()
        M, noise = W.T @ M @ W, np.abs(W).T @ noise @ np.abs(W)
    top = float(np.linalg.eigvalsh(M)[-1]) if len(M) else 0.0
    if not top > lost + norm(noise):
        checks.refuse(
            "the blow-up time is lost in rounding",
            got="a direction that blows up, beside others that shrink far faster",
            expected="sizes of the directions within some thirty digits of each other",
            remedy="leave out the directions that shrink, or scale them down: they do not bring it about",
        )
    return top
