"""Tensors by name, from files that hold numbers and nothing else: safetensors, or `.bin` files read weights-only."""

import math
import warnings
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from .files import file_in, is_pointer, need, read_table, reason
from .pickles import look_at

SAFETENSORS, BIN = "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"
# Before, a file could do harm even if it was read weights-only (CVE-2025-32434, CVE-2026-24747).
SAFE_TORCH = (2, 10)


class Stored(NamedTuple):
    """A tensor in a file: its shape, and how to read it."""

    shape: tuple[int, ...]
    read: Callable[[], Any]


class Weights:
    """The tensors of a model, read one by one when they are asked for, in `dtype`; it remembers which were."""

    def __init__(self, tensors: Mapping[str, Stored], dtype: Any):
        self._tensors, self._dtype = dict(tensors), np.dtype(dtype)
        self._unused = set(self._tensors)
        count = sum(math.prod(tensor.shape) for tensor in self._tensors.values())
        remedy = "take a smaller model" + (', or dtype="float32"' if self._dtype.itemsize > 4 else "")
        checks.fits_in_memory(f"a model of {count / 1e9:.3g} billion numbers", count * self._dtype.itemsize, remedy)

    def read(self, name: str, *shape: int) -> np.ndarray:
        """The tensor of this name, if it has this shape; -1 stands for any length."""
        if name not in self._tensors:
            near = [n for n in self._tensors if n.rsplit(".", 2)[-2:] == name.rsplit(".", 2)[-2:]]
            checks.refuse(
                "the weights lack a tensor that the architecture needs",
                got=f"no {name}" + (f"; there is {near[0]}" if near else f", among {len(self._tensors)} tensors"),
                expected="the tensors of the architecture that config.json names",
                remedy="check model_type in config.json, and that all files of the model are there",
            )
        stored = self._tensors[name]
        fits = len(stored.shape) == len(shape) and all(b in (-1, a) for a, b in zip(stored.shape, shape, strict=True))
        if not fits or 0 in stored.shape:
            checks.refuse(
                "a tensor has another shape than config.json says",
                got=f"{name} of shape {stored.shape}",
                expected=f"shape ({', '.join('any' if size == -1 else str(size) for size in shape)})",
                remedy="take config.json and weights of one model",
            )
        self._unused.discard(name)
        return self._checked(name, stored)

    def _checked(self, name: str, stored: Stored) -> np.ndarray:
        try:
            array = np.asarray(stored.read())
        except Exception as error:
            checks.refuse(
                "a tensor cannot be read",
                got=f"{name}: {reason(error)}",
                expected="numbers in 64, 32 or 16 bits",
                remedy="store the weights as float32 once, by the library that made them",
            )
        if not jnp.issubdtype(array.dtype, jnp.floating):
            checks.refuse(
                "quantised weights are not supported",
                got=f"{name}, of {array.dtype}",
                expected="floating-point numbers",
                remedy="take the weights from before quantisation",
            )
        with np.errstate(over="ignore"):
            array = array.astype(self._dtype, copy=False)
        if not (np.isfinite(array.min()) and np.isfinite(array.max())):  # without a copy; NaN goes through both
            checks.refuse(
                "the weights are not finite",
                got=f"{name}, with {np.count_nonzero(~np.isfinite(array))} of {array.size} numbers NaN or infinite",
                expected=f"finite numbers of {self._dtype}",
                remedy="download the file again; a training that blew up has no weights to look at",
            )
        return array

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def unused(self, prefix: str) -> list[str]:
        """The names that begin with `prefix` and were not asked for."""
        return sorted(name for name in self._unused if name.startswith(prefix))


def read_weights(folder: Path, dtype: Any) -> Weights:
    """The weights in a folder: safetensors if there are any, one file or several; else `.bin` files."""
    for name, read in ((SAFETENSORS, _safetensors), (BIN, _state)):
        if file := file_in(folder, name):
            return Weights(read(file), dtype)
        if file_in(folder, f"{name}{INDEX}"):
            return Weights(_sharded(folder, f"{name}{INDEX}", read), dtype)
    names = sorted(path.name for path in folder.iterdir())
    checks.refuse(
        "this folder has no weights",
        got=f"{folder.name}, with {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}",
        expected=f"{SAFETENSORS} or {BIN}, or one of them in parts with {SAFETENSORS}{INDEX} or {BIN}{INDEX}",
        remedy="download the weights too; other formats (h5, msgpack, onnx, gguf) are converted with their own tools",
    )


def load_bin(path: Path) -> Any:
    """What a `.bin` file or checkpoint holds, read weights-only: tensors, lists, tables, numbers; code is refused."""
    _refuse_pointer(path)
    try:
        torch: Any = import_module("torch")
    except ImportError:
        checks.refuse(
            "a .bin file is read by torch, which is not installed",
            got=path.name,
            expected="torch, or the weights as safetensors",
            remedy="install torch, or convert the file to model.safetensors once",
        )
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < SAFE_TORCH:
        checks.refuse(
            "this torch does not read .bin files safely",
            got=f"{path.name}, torch {torch.__version__}",
            expected=f"torch {SAFE_TORCH[0]}.{SAFE_TORCH[1]} or newer, or the weights as safetensors",
            remedy="update torch: before, a file could run code even when it was read weights-only",
        )
    mapped = zipfile.is_zipfile(path)  # then a tensor takes memory when it is used; old files are read as a whole
    if not mapped:
        checks.fits_in_memory(f"reading {path.name}", path.stat().st_size, "convert it to safetensors elsewhere")
    try:
        look_at(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the age of the format
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # a pickle with code in it, or a damaged file
        checks.refuse(
            f"{path.name} is not a file of weights alone",
            got=reason(error),
            expected="tensors, lists, tables and numbers: code in a pickle is never run",
            remedy="convert the model to safetensors on a machine where you trust the file",
        )


def tensors_of(state: Any) -> dict[str, Stored]:
    """The tensors of a state dictionary of torch."""
    if not isinstance(state, Mapping):
        checks.refuse(
            "this .bin file holds no table of tensors",
            got=checks.described(state),
            expected="names and tensors, a state dictionary",
            remedy="name the folder of a model that save_pretrained has written",
        )

    def numpy(tensor: Any) -> Any:
        # NumPy has no bfloat16 of its own.
        return (tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor).detach().numpy()

    found = {str(name): tensor for name, tensor in state.items() if hasattr(tensor, "is_floating_point")}
    return {name: Stored(tuple(tensor.shape), partial(numpy, tensor)) for name, tensor in found.items()}


def _state(path: Path) -> dict[str, Stored]:
    return tensors_of(load_bin(path))


def _safetensors(path: Path) -> dict[str, Stored]:
    safetensors = need("safetensors", "a file of weights")
    _refuse_pointer(path)
    try:
        file = safetensors.safe_open(str(path), framework="numpy")
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except Exception as error:
        checks.refuse(
            f"{path.name} cannot be read",
            got=reason(error),
            expected="a whole file in the safetensors format",
            remedy="download it again: it may have been cut short",
        )
    return {name: Stored(shape, partial(file.get_tensor, name)) for name, shape in shapes.items()}


def _sharded(folder: Path, index: str, read: Callable[[Path], dict[str, Stored]]) -> dict[str, Stored]:
    table = read_table(folder, index).get("weight_map")
    if not isinstance(table, dict) or not table:
        checks.refuse(
            f"{index} does not say which file holds which tensor",
            got=f"weight_map = {table!r}",
            expected="a table of tensors and files",
            remedy="download the index again",
        )
    files = {name: _inside(folder, str(file), index) for name, file in table.items()}
    opened = {file: read(file) for file in sorted(set(files.values()))}
    lost = [name for name, file in files.items() if name not in opened[file]]
    if lost:
        checks.refuse(
            f"{index} lists a tensor that its file does not hold",
            got=f"{lost[0]}, in {files[lost[0]].name}",
            expected="an index that fits the files beside it",
            remedy="download the files of one version of the model",
        )
    return {name: opened[file][name] for name, file in files.items()}


def _inside(folder: Path, name: str, index: str) -> Path:
    """A file that an index names: it must lie in the folder, and be there."""
    path = file_in(folder, name) if Path(name).name == name else None
    if path is None:
        checks.refuse(
            f"{index} names a file that is not in its folder",
            got=name,
            expected="a file beside the index",
            remedy="download all files of the model into one folder",
        )
    return path


def _refuse_pointer(path: Path) -> None:
    if is_pointer(path):
        checks.refuse(
            f"{path.name} is a pointer: git left the large file where it was",
            got=f"{path.stat().st_size} bytes of text",
            expected="the file with the weights",
            remedy="git lfs pull, in the folder of the model",
        )
