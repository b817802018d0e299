"""The fates of Gaussian runs, thousands at a time."""

import time as clock
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from .._programs.call import program
from .._progress import Progress
from .._types import is_traced
from ..attention.base import AbstractField, AbstractLeaf, check_square
from ..attention.heads import stack, stackable
from ..attention.schedule import is_constant
from ..fate import FateKind as Kind
from ..fate import Fates
from ..measures.gaussian import Gaussian
from .classify import Record, classify, limit_of, look, stationary, turned, unit_speed_of
from .march import March, bounded_speed, leaves_of, mean_matters, needs_patience, segment, sight, start
from .units import Units, own_units

# Marches in one compiled call, and steps between two looks at them: a march that is decided leaves at the next look,
# so that a hard problem holds back nobody.
BATCH, LOOKS, STEPS = 32, 2, 8
WORKERS = 2
BUDGET = 1200
# Small batches of nearby dimensions share their compiled programme: zero rows and columns change nothing. Compiling
# takes as long as some hundred runs.
SHARED_SIZES, SMALL_BATCH = (2, 5, 8), 500


def fates(
    fields: AbstractField | Sequence[AbstractField],
    gaussians: Gaussian | Sequence[Gaussian],
    *,
    rtol: float = 1e-7,
    max_steps: int = BUDGET,
    progress: bool | None = None,
) -> Fates:
    r"""The fates of many Gaussian runs: each covariance $\Sigma=LL^\top$ is marched, $\dot L=GL$, until its fate is
    known.

    **Arguments:**

    - `fields`: one field for all; a list of fields of one kind and shape; or a batch of them, one field whose arrays
      have a leading axis, which is fastest to make: `jax.vmap(mf.Softmax)(Q, K, V)`.
    - `gaussians`: one for all, a list, or a batch: `mf.Gaussian(means, factor=factors)`, shapes `(n, d)`, `(n, d, r)`.
    - `rtol`: the relative error allowed in a step. `max_steps`: how many steps to try before "UNDECIDED", 1200 by
      default, in sixteens.
    - `progress`: a bar, if it takes long (default: on a terminal, in a notebook).

    **Returns:** `Fates`, arrays of kinds, times, ranks, limits, with one entry per run.

    ```python
    I, g = jnp.eye(2), mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    fields = jax.vmap(lambda q: mf.Softmax(q * I, I, I))(jnp.array([1.0, -1.0]))  # A = I and A = -I
    found = mf.fates(fields, g)
    print(found.summary())
    assert found.kind.tolist() == ["BLEW_UP", "CONVERGED"]
    ```

    MATH e.5.
    """
    began = clock.monotonic()
    if is_traced(fields, gaussians):
        checks.refuse(
            "fates are found on the host",
            got="a field or a Gaussian under jit, vmap or grad",
            expected="known numbers",
            remedy="pass a batch as one; to differentiate, flow to a finite time: mf.flow(field, g, t1=1.0)",
        )
    leaves, structure, gaussians, n, units = _checked_batch(fields, gaussians)
    d, r = gaussians.factor.shape[1:]
    if n <= SMALL_BATCH:
        leaves = [_padded(leaf) for leaf in leaves]
        gaussians = Gaussian(_padded(gaussians.mean), factor=_padded(gaussians.factor))
    rtol = float(checks.relative_tolerance(rtol, jnp.zeros(()).dtype, "1e-7"))
    pool = _Pool(leaves, structure, gaussians, n, rtol, checks.whole(max_steps, "max_steps"))
    with Progress(progress, 0, n, "fates", "decided") as bar, ThreadPoolExecutor(WORKERS) as workers:
        while pool.active.size:
            list(workers.map(pool.advance, pool.chunks()))
            pool.retire()
            bar.update(n - pool.active.size, int(pool.tries.sum()))
    return pool.fates(d, r, units, clock.monotonic() - began)


def _padded(batch: Any) -> np.ndarray:
    """The arrays of a batch with every axis but the first padded with zeros to a shared size."""
    batch = np.asarray(batch)
    room = [next((s - size for s in SHARED_SIZES if s >= size), 0) for size in batch.shape[1:]]
    return np.pad(batch, [(0, 0), *((0, extra) for extra in room)])


def _checked_batch(fields: Any, gaussians: Any) -> tuple[list[np.ndarray], Any, Gaussian, int, Units]:
    """The leaves of the fields and the Gaussians, all with a leading axis of one length, in float64 and own units."""
    if isinstance(gaussians, (list, tuple)) and all(isinstance(g, Gaussian) for g in gaussians) and gaussians:
        width = max(g.factor.shape[-1] for g in gaussians)
        if len({g.d for g in gaussians}) > 1:
            checks.refuse(
                "a batch has one dimension",
                got=f"Gaussians of dimensions {sorted({g.d for g in gaussians})}",
                expected="one dimension d",
                remedy="call mf.fates once for each dimension",
            )
        padded = [np.pad(np.asarray(g.factor), ((0, 0), (0, width - g.factor.shape[-1]))) for g in gaussians]
        gaussians = Gaussian(np.stack([np.asarray(g.mean) for g in gaussians]), factor=np.stack(padded))
    if not isinstance(gaussians, Gaussian):
        checks.refuse(
            "fates are those of Gaussians",
            got=checks.described(gaussians),
            expected="a Gaussian, a list of them, or a batch",
            remedy="mf.fates(fields, mf.Gaussian(means, factor=factors))",
        )
    if isinstance(fields, (list, tuple)):
        if not fields:
            checks.refuse(
                "fates are those of at least one field",
                got="an empty list",
                expected="a field, a list of them, or a batch",
                remedy="look why the list has none",
            )
        alike = all(isinstance(f, AbstractField) for f in fields) and stackable(fields)
        if not alike:
            checks.refuse(
                "the fields of a batch must be alike",
                got=f"{len(fields)} fields of different kinds or shapes",
                expected="fields of one kind, with matrices of one shape",
                remedy="call mf.fates once for each kind",
            )
        fields = stack(fields)
    if not isinstance(fields, AbstractField):
        check_square(fields, None, jnp.zeros(()))
    if not is_constant(fields):
        checks.refuse(
            "a fate is that of a field that does not depend on time",
            got=type(fields).__name__,
            expected="constant weights",
            remedy="use mf.flow with a finite t1",
        )
    parts = [part for part in jax.tree.leaves(fields, is_leaf=_is_leaf) if _is_leaf(part)]
    lengths = {part.dimensions[0] for part in parts if len(part.dimensions or ()) == 3}
    many_fields = bool(lengths)
    lengths |= {gaussians.mean.shape[0]} if gaussians.mean.ndim == 2 else set()
    if len(lengths) > 1:
        checks.refuse(
            "fields and Gaussians must be as many",
            got=f"batches of {' and '.join(map(str, sorted(lengths)))}",
            expected="one length, or one field or Gaussian for all",
            remedy="cut the longer batch",
        )
    n = lengths.pop() if lengths else 1
    if many_fields:
        fields = jax.tree.map(lambda part: _repeated(part, n), fields, is_leaf=_is_leaf)
    leaves, structure = jax.tree.flatten(fields)
    leaves = [np.asarray(leaf) for leaf in leaves]
    leaves = [leaf.astype(np.float64) if leaf.dtype.kind == "f" else leaf for leaf in leaves]
    if not many_fields:
        leaves = [np.broadcast_to(leaf, (n, *leaf.shape)) for leaf in leaves]
    mean, factor = np.asarray(gaussians.mean, np.float64), np.asarray(gaussians.factor, np.float64)
    if mean.ndim == 1:
        mean, factor = np.broadcast_to(mean, (n, *mean.shape)), np.broadcast_to(factor, (n, *factor.shape))
    for name, arrays in (("fields", leaves), ("Gaussians", [mean, factor])):
        for array in arrays:
            bad = np.flatnonzero(~np.isfinite(array.reshape(n, -1)).all(axis=1)) if array.dtype.kind == "f" else []
            if len(bad):
                checks.refuse(
                    f"the {name} must be finite",
                    got=f"a value that is not finite in number {bad[0]} of the batch",
                    expected="finite numbers",
                    remedy="a singular cov under jax.vmap gives this: pass factor= instead",
                )
    first = jax.tree.unflatten(structure, [jnp.asarray(leaf[0]) for leaf in leaves])
    check_square(first, Gaussian(mean[0], factor=factor[0]), jnp.zeros(()))
    whole = jax.tree.unflatten(structure, leaves)
    whole, gaussians, units = own_units(whole, Gaussian(mean, factor=factor), mean_matters(first), batch=1)
    mean, factor = np.asarray(gaussians.mean), np.asarray(gaussians.factor)
    return jax.tree.leaves(whole), structure, Gaussian(mean, factor=orthogonal_columns(factor)), n, units


def _is_leaf(part: Any) -> bool:
    return isinstance(part, AbstractLeaf)


def _repeated(part: Any, n: int) -> Any:
    """A part of a batch of fields, repeated if it is one for all: a leaf with plain matrices, or a number."""
    if _is_leaf(part):
        single = len(part.dimensions or ()) == 2
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (n, *a.shape)), part) if single else part
    if jnp.ndim(part) > 0 and part.shape[0] != n:
        checks.refuse(
            "the parts of a batch of fields must be as many",
            got=f"an array of shape {part.shape} in a batch of {n}",
            expected=f"a leading axis of {n}",
            remedy="make the whole field under jax.vmap: jax.vmap(lambda Q, K, V: 0.5 * mf.Softmax(Q, K, V))(Q, K, V)",
        )
    return jnp.broadcast_to(part, (n,)) if jnp.ndim(part) == 0 else part


def orthogonal_columns(factor: np.ndarray) -> np.ndarray:
    r"""Another factor of the same $\Sigma$, with orthogonal columns, as few as there are dimensions."""
    vectors, values, _ = np.linalg.svd(factor, full_matrices=False)
    return vectors * values[..., None, :]


@program
def _start(leaves: Any, structure: Any, gaussians: Gaussian, with_mean: bool) -> Any:
    def one(leaves: Any, gaussian: Gaussian) -> Any:
        field = jax.tree.unflatten(structure, leaves)
        march = start(field, gaussian, with_mean)
        return march, sight(field, march, with_mean)

    return jax.vmap(one)(leaves, gaussians)


@program
def _advance(leaves: Any, structure: Any, where: tuple[Any, ...], rtol: Any, with_mean: bool) -> Any:
    def one(leaves: Any, where: tuple[Any, ...]) -> Any:
        field = jax.tree.unflatten(structure, leaves)
        march, seen, _ = segment(field, March(*where), rtol, LOOKS, STEPS, with_mean, keep=False)
        return march, seen

    return jax.vmap(one)(leaves, where)


class _Pool:
    """The marches of a batch, kept on the host and advanced a chunk at a time."""

    def __init__(self, leaves: list[np.ndarray], structure: Any, gaussians: Gaussian, n: int, rtol: float, budget: int):
        self.leaves, self.structure, self.n, self.rtol = leaves, structure, n, rtol
        first = jax.tree.unflatten(structure, [jnp.asarray(leaf[0]) for leaf in leaves])
        self.with_mean = mean_matters(first)
        self.patient = needs_patience(first)
        self.size = min(BATCH, 1 << (n - 1).bit_length())
        self.looks = LOOKS * -(-budget // (LOOKS * STEPS))
        r = gaussians.factor.shape[-1]
        self.record = Record.empty(n, self.looks + 1, r)
        self.done = 0
        self.active = np.arange(n)
        self.Y, self.tries = np.empty(0), np.zeros(n, int)
        self.t, self.h, self.unit, self.faint = np.zeros((4, n))
        each = jax.vmap(lambda own: leaves_of(jax.tree.unflatten(structure, own)))(leaves)
        self.bounded = np.broadcast_to(bounded_speed(each), (n,))
        self.unit_speed = np.zeros(n)
        self.answer: dict[str, np.ndarray] = {
            "kind": np.zeros(n, int),
            "time": np.zeros(n),
            "error": np.zeros(n),
            "rank": np.full(n, -1),
            "exponent": np.zeros(n),
            "alive": np.zeros((n, r), bool),
        }
        for rows in self.chunks():
            picked = jax.tree.map(lambda a, rows=rows: np.asarray(a)[rows], gaussians)
            march, seen = _start([a[rows] for a in leaves], structure, picked, self.with_mean)
            if not self.Y.size:
                self.Y = np.zeros((n, *march.Y.shape[1:]))
            self._keep(rows, march)
            self._look(rows, seen, 0)
        self._stationary()

    def chunks(self) -> list[np.ndarray]:
        """The numbers of the active marches, in chunks of one size: the last one is filled up with repeats."""
        cuts = range(0, self.active.size, self.size)
        return [np.resize(self.active[i : i + self.size], self.size) for i in cuts]

    def _keep(self, rows: np.ndarray, march: March) -> None:
        self.Y[rows], self.t[rows], self.h[rows] = (np.asarray(a) for a in (march.Y, march.t, march.h))
        self.unit[rows], self.faint[rows] = np.asarray(march.unit), np.asarray(march.faint)
        self.tries[rows] = np.asarray(march.tries)

    def _look(self, rows: np.ndarray, seen: Any, number: int) -> None:
        t, Y, F, dF, G = (np.asarray(a) for a in (seen.t, seen.Y, seen.F, seen.dF, seen.G))
        factor = Y[:, :, :-1] if self.with_mean else Y
        for name, values in look(t, Y, F, dF, G, factor).items():
            getattr(self.record, name)[rows, number] = values
        if number == 0:
            self.unit_speed[rows] = unit_speed_of(Y, F, G, with_mean=self.with_mean)

    def _stationary(self) -> None:
        still = self.unit_speed == 0
        alive = stationary(self.record.singular[:, 0])
        self.answer["kind"][still] = int(Kind.CONVERGED)
        self.answer["rank"][still] = alive[still].sum(axis=1)
        self.answer["alive"][still] = alive[still]
        self.active = np.flatnonzero(~still)

    def advance(self, rows: np.ndarray) -> None:
        """One segment for the marches in `rows`."""
        where = tuple(a[rows] for a in (self.Y, self.t, self.h, self.unit, self.faint, self.tries))
        march, seen = _advance(
            [a[rows] for a in self.leaves], self.structure, where, np.float64(self.rtol), self.with_mean
        )
        self._keep(rows, march)
        self.Y[rows] = turned(self.Y[rows], self.with_mean)[0]
        for number in range(LOOKS):
            self._look(rows, jax.tree.map(lambda a, k=number: np.asarray(a)[:, k], seen), self.done + 1 + number)

    def retire(self) -> None:
        """Take out the marches whose fate is known, or hopeless."""
        self.done += LOOKS
        rows = self.active
        seen = classify(self.record.rows(rows, self.done), self.unit_speed[rows], self.patient, self.bounded[rows])
        out = (seen["kind"] != Kind.UNDECIDED) | seen["gave_up"] | (self.done >= self.looks)
        out |= ~np.isfinite(self.record.log_size[rows, self.done])
        for name, values in self.answer.items():
            values[rows[out]] = seen[name][out]
        self.active = rows[~out]

    def fates(self, d: int, r: int, units: Units, seconds: float) -> Fates:
        """What is known, as arrays, of Gaussians in dimension `d` with factors of `r` columns."""
        last = np.where(np.isfinite(self.record.t), np.arange(self.looks + 1), -1).max(axis=1)
        everyone = np.arange(self.n)
        now = {name: values[everyone, last] for name, values in vars(self.record).items()}
        factor = self.Y[:, :, :-1] if self.with_mean else self.Y
        limits = limit_of(factor, self.answer["alive"])[:, :d, :d]
        converged, blown = (self.answer["kind"] == kind for kind in (Kind.CONVERGED, Kind.BLEW_UP))
        error = self.answer["error"] + 10 * self.rtol * blown * self.answer["time"]
        return Fates(
            code=self.answer["kind"],
            time=units.time(self.answer["time"]),
            error=units.time(error),
            rank=self.answer["rank"],
            limit=np.where(converged[:, None, None], units.lengths(limits, 2), np.nan),
            growth=units.rate(now["growth"]),
            exponent=self.answer["exponent"],
            slopes=now["slopes"][:, :r],
            steps=self.tries,
            seconds=seconds,
        )
