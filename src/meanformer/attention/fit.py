"""Whether the parts of a field fit each other and the tokens."""

from typing import Any

from .. import _checks as checks
from .._types import Scalar
from ..measures.cloud import PointCloud
from ..measures.density import Density
from ..measures.gaussian import Gaussian


def masked(field: Any, t: Scalar) -> bool:
    """Whether some part of the field is masked."""
    return any(term.causal or (term.leaf.normed and masked(term.leaf.field, t)) for term in field.terms(t))


def outputs(field: Any, mu: PointCloud | Gaussian | Density, t: Scalar, where: str) -> list[tuple[str, int]]:
    """The name of each leaf and the dimension of what it gives; refuses a leaf that does not take what it is given."""
    found = []
    for term in field.terms(t):
        name = type(term.leaf).__name__ + where
        if term.leaf.normed:
            _check_gains(term.leaf.norm, mu, name)
            inner = outputs(term.leaf.field, mu, t, where)
            if not inner:
                continue
            out = inner[0][1]
        elif term.leaf.dimensions is None:
            continue
        else:
            out, into = term.leaf.dimensions
            if into != mu.d:
                checks.refuse(
                    f"{name} does not fit the tokens",
                    got=f"matrices for dimension {into}, tokens of dimension {mu.d}",
                    expected="one dimension d for the matrices and the tokens",
                    remedy=f"give matrices with {mu.d} columns (for attention: Q, K and V)",
                )
        if term.left.ndim == 2 and term.left.shape[1] != out:
            checks.refuse(
                f"W does not take what {name} gives",
                got=f"W of shape {term.left.shape}, vectors of dimension {out}",
                expected=f"W of shape (d, {out})",
                remedy="transpose W, or slice it by columns",
            )
        found.append((name, term.left.shape[0] if term.left.ndim == 2 else out))
    if len({out for _, out in found}) > 1:
        checks.refuse(
            "the parts of a field give vectors of different dimension" + where,
            got=", ".join(f"{name}: {out}" for name, out in found),
            expected="one dimension",
            remedy="bring heads to one dimension with MultiHead(heads, W=[...]), W of shape (d, v)",
        )
    return found


def _check_gains(norm: Any, mu: PointCloud | Gaussian | Density, name: str) -> None:
    for gain in ("scale", "bias"):
        vector = getattr(norm, gain, None)
        if vector is not None and vector.shape[0] != mu.d:
            checks.refuse(
                f"the {gain} of {type(norm).__name__} does not fit the tokens",
                got=f"length {vector.shape[0]} in {name}, tokens of dimension {mu.d}",
                expected=f"length {mu.d}",
                remedy=f"give one {gain} per coordinate",
            )
