"""Compiled programs as bytes, and back."""

import contextlib
import functools
import hashlib
import importlib.util
import os
import pickle
import platform
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
from jax.core import ShapedArray
from jax.experimental import serialize_executable

from . import identity


def _settings() -> tuple[Any, ...]:
    """What of JAX's configuration changes programs."""
    names = ("enable_x64", "default_matmul_precision", "numpy_dtype_promotion", "numpy_rank_promotion")
    return tuple(getattr(jax.config, f"jax_{name}") for name in names)


# The same, with all that JAX itself asks; another JAX may have moved it.
trace_context: Any = getattr(jax._src.config, "trace_context", _settings)  # pyright: ignore


# Where a program calls something that its process must bring: LAPACK, which is brought here, or anything else.
_CALLED = re.compile(r"custom_call @([\w.$-]+)")
_LAPACK = re.compile(r"lapack_\w+_ffi$")
_IMPORTED = time.time()
# What XLA takes for instructions that the processor lacks are two settings of its own: it says so at each load.
_NOISE = b"cpu_aot_loader.cc"
_hits = [0]


def calls(lowered: Any) -> set[str]:
    """The names of all that a program calls outside of XLA."""
    return set(_CALLED.findall(lowered.as_text()))


def compiled(lowered: Any, options: Mapping[str, Any]) -> tuple[Any, bool]:
    """The compiled program, and whether it can be kept: if JAX's own cache had it, its code is not whole."""
    _count_hits()
    before = _hits[0]
    try:
        program = lowered.compile(dict(options))
    except jax.errors.JaxRuntimeError as error:
        if not options or "option" not in str(error).lower():
            raise
        program = lowered.compile()  # an option that this XLA does not know
    return program, _hits[0] == before


def packed(program: Any, lapack: bool, outputs: Any) -> bytes | None:
    """A compiled program as bytes, with the structure of what it returns; None if that cannot be done."""
    try:
        body, _, made = serialize_executable.serialize(program)
        return pickle.dumps((body, lapack, made.num_leaves, outputs))
    except Exception:  # whatever an experimental interface may raise
        return None


def unpacked(data: bytes, inputs: int) -> tuple[Any, Any]:
    """The program that takes `inputs` arrays, and the structure of what it returns."""
    body, lapack, arrays, outputs = pickle.loads(data)
    if lapack:
        _start_lapack()
    trees = jax.tree.structure(((0,) * inputs, {})), jax.tree.structure((0,) * arrays)
    with _without_noise():
        return serialize_executable.deserialize_and_load(body, *trees), outputs


def only_lapack(names: set[str]) -> bool:
    """Whether a program that calls these can be loaded in another process."""
    return all(_LAPACK.match(name) for name in names)


def key_on_disk(function: Callable[..., Any], options: Mapping[str, Any], key: Hashable) -> str | None:
    """A name for a program that is the same in all processes in which it would be the same; None if there is none."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    code = getattr(function, "__code__", None)
    try:
        if module.partition(".")[0] == "meanformer" and code is not None and not code.co_freevars:
            named: Hashable = (module, name, code.co_firstlineno)  # the sources are part of the environment
        else:
            named = _stable(identity.value_of(function))
        whole = (_environment(), _configuration(), named, _stable(tuple(sorted(options.items()))), _stable(key))
        return hashlib.sha256(repr(whole).encode()).hexdigest()
    except identity.Unknown:
        return None


def _stable(part: Any) -> Hashable:
    """A part of the key in memory, by value."""
    if isinstance(part, identity.Same):
        raise identity.Unknown
    if part is None or isinstance(part, (str, bytes, int, float, complex)):
        return type(part).__name__, repr(part)
    if isinstance(part, (tuple, list)):
        return type(part).__name__, tuple(_stable(item) for item in part)
    if isinstance(part, frozenset):
        return "frozenset", tuple(sorted(repr(_stable(item)) for item in part))
    if isinstance(part, jax.tree_util.PyTreeDef):
        node = part.node_data()
        return "tree", part.num_leaves, node and _stable(node), tuple(_stable(child) for child in part.children())
    if isinstance(part, ShapedArray):
        return "array", str(part), part.weak_type
    return _stable(identity.value_of(part))


def _configuration() -> Hashable:
    """The configuration of JAX, so far as it may change programs."""
    names = (
        "disable_most_optimizations",
        "exec_time_optimization_effort",
        "memory_fitting_effort",
        "optimization_level",
        "default_prng_impl",
    )
    values = [getattr(jax.config, f"jax_{name}", None) for name in names]
    # An object here is a device, a mesh or an axis of a transformation, which outside of these is the default.
    context = [item if isinstance(item, (int, float, str, tuple)) else str(type(item)) for item in trace_context()]
    return repr(values), repr(context)


@functools.cache
def _environment() -> Hashable:
    """Versions, sources, processor and flags. Raises Unknown if sources have changed since they were imported."""
    if not as_loaded():
        raise identity.Unknown
    names = {"XLA_FLAGS", "NPROC"} | {name for name in os.environ if name.startswith("EQX_")}
    flags = tuple((name, os.environ.get(name, "")) for name in sorted(names))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return _versions(), sys.version, _sources(), _processor(), cores, flags


def _versions() -> Hashable:
    """What is installed: by the names of folders, since to read the metadata of a package takes milliseconds."""
    beside = _beside_jax()
    found = []
    for library in identity.LIBRARIES[1:]:
        named = [name for name in beside if name.startswith(f"{library}-") and name.endswith(".dist-info")]
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append((library, sorted(named) or metadata.version(library)))
    return repr(found)


def _beside_jax() -> list[str]:
    return [path.name for path in Path(jax.__file__).parent.parent.iterdir()]


def _sources() -> str:
    """A digest of the sources of meanformer: 200 files, read in some milliseconds."""
    digest = hashlib.sha256()
    source = importlib.util.find_spec("meanformer").loader.get_data  # pyright: ignore
    for path in _files():
        digest.update(path.name.encode() + source(str(path)))
    return digest.hexdigest()


def _files() -> list[Path]:
    return sorted(Path(__file__).parent.parent.rglob("*.py"))


def as_loaded() -> bool:
    """Whether no source has changed since it was imported: what is compiled then belongs to the sources on disk."""
    try:
        return all(path.stat().st_mtime <= _IMPORTED for path in _files())
    except OSError:  # a file has gone
        return False


def _processor() -> str:
    """The processor and what it can do: a program uses its instructions, and a home may be shared by several."""
    words = [platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        words += sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    return "\n".join(words)


@functools.cache
def _start_lapack() -> None:
    """Hand LAPACK to XLA, which JAX does when it lowers a program with it. Without, such a program crashes."""
    from jaxlib import lapack

    lapack._lapack.initialize()  # pyright: ignore[reportPrivateImportUsage]


@functools.cache
def _count_hits() -> None:
    """Count what JAX's own cache on disk provides."""

    def listen(event: str, **_: Any) -> None:
        _hits[0] += event == "/jax/compilation_cache/cache_hits"

    jax.monitoring.register_event_listener(listen)


# Standard error is one for all threads; and where the first load is quiet, so are all others.
_loading, _quiet = threading.Lock(), [False]


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Without one known message of XLA, which writes to the standard error of the process; all others are passed on."""
    with _loading:
        try:
            real = None if _quiet[0] else os.dup(2)
        except OSError:  # no standard error
            real = None
        if real is None:
            yield
            return
        with tempfile.TemporaryFile() as held, os.fdopen(real, "wb", 0) as out:
            os.dup2(held.fileno(), 2)
            try:
                yield
            finally:
                os.dup2(real, 2)
                held.seek(0)
                lines = held.readlines()
                _quiet[0] = not any(_NOISE in line for line in lines)
                out.writelines(line for line in lines if _NOISE not in line)
