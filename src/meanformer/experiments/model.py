"""A pretrained transformer and an input, analysed stage after stage into a run folder of the kind "model"."""

import dataclasses
import hashlib
import io
import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _checks as checks
from ..store import disk
from ..store.errors import FolderError
from ..store.folder import RunFolder
from ..store.provenance import provenance
from .runner import QUIET, Watch, begin, check_free, holding, holds, interruptible, read_item, write_results

if TYPE_CHECKING:
    from ..models.record import TransformerRecord
    from ..models.transformer import Transformer

INPUTS = ("text", "words", "image", "tokens")
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm")
CITES = ["vaswani2017", "geshkovski2024"]
# The papers of the architectures.
PAPERS = {"bert": "bert", "albert": "albert"}
# The files that make a model; those above `LARGE` bytes are hashed at their two ends only, `END` bytes of each.
FILES = (".json", ".txt", ".safetensors", ".bin", ".model")
LARGE, END = 2**30, 2**26
# What a file of an array, and one of several arrays, begins with.
NPY, NPZ = b"\x93NUMPY", b"PK"


@dataclasses.dataclass(frozen=True)
class Given:
    """An input: its `kind` ("text", "image" or "tokens"), its bytes, the name of the file that they come from, if there
    is one, and where they lie now.
    """

    kind: str
    data: bytes
    source: str = ""
    path: Path | None = None

    @property
    def copy(self) -> str:
        """The name of the input in a run folder."""
        suffix = {"text": ".txt", "tokens": ".npy"}.get(self.kind) or Path(self.source).suffix.lower()
        return "input" + (suffix if suffix in (".txt", ".npy", *PICTURES) else ".image")

    def record(self, model: "Transformer", dtype: str, cut: bool) -> "tuple[TransformerRecord, int | None]":
        """What the model does with it; and the number of its tokens, if it was too long and was cut."""
        if self.kind == "image":
            return model.record(image=self.path), None
        if self.kind == "tokens":
            return model.record(tokens=_array(self.data, self.source, dtype)), None
        text = _text(self.data, self.source)
        record = model.record(text, cut=cut)
        limit = model.embedding.limit
        if limit is None or record.n < limit or model.tokenizer is None:
            return record, None
        n = len(model.tokenizer(text)[0])
        return record, n if n > record.n else None


def given(text: str | None = None, words: str | None = None, image: Any = None, tokens: Any = None) -> Given:
    """The one input that is given: the file of a `text` ("-": standard input), its `words` themselves, the file of an
    `image`, or that of an array of `tokens` (.npy).
    """
    named = {name: value for name, value in zip(INPUTS, (text, words, image, tokens), strict=True) if value is not None}
    if len(named) != 1:
        checks.refuse(
            "one input is analysed at a time",
            got=" and ".join(f"--{name}" for name in named) or "none",
            expected="one of --text FILE, --words TEXT, --image FILE, --tokens FILE.npy",
            remedy='for instance --words "A transformer moves tokens layer by layer."',
        )
    ((name, value),) = named.items()
    if name == "words":
        return Given("text", str(value).encode())
    if name == "text" and str(value) == "-":
        return Given("text", _content(sys.stdin.buffer.read, "standard input"))
    path = Path(value)
    try:
        with path.open("rb") as file:
            return Given(name, _content(file.read, str(path)), path.name, path)
    except OSError as error:
        checks.refuse(
            f"the file of the {name} cannot be read",
            got=f"{path}: {error.strerror}",
            expected="a file",
            remedy="check the path",
        )


def _content(read: Callable[[int], bytes], source: str) -> bytes:
    """All that there is to read: a run folder takes a copy."""
    data = read(disk.LARGEST + 1)
    if len(data) > disk.LARGEST:
        checks.refuse(
            "the input is too large for a run folder",
            got=f"{source}: more than {disk.LARGEST:,} bytes",
            expected="one text, image or array of tokens",
            remedy="give a part of it; a model takes a few thousand tokens at a time",
        )
    return data


def _text(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        checks.refuse(
            "the text is not UTF-8",
            got=f"{source or 'text'}: byte {error.start} is {data[error.start]:#04x}",
            expected="plain text in UTF-8",
            remedy="convert the file, e.g. with iconv; PDF and Word files are no text",
        )


def _array(data: bytes, source: str, dtype: str) -> np.ndarray:
    if not data.startswith(NPY):
        several = "several arrays, or another archive"
        checks.refuse(
            "the file of tokens is no .npy file",
            got=f"{source}: " + (several if data.startswith(NPZ) else f"it begins with {data[:6]!r}"),
            expected="one array that numpy.save wrote; other files, such as pickled objects, are never loaded",
            remedy="np.save('tokens.npy', array) with an array of shape (n, d)",
        )
    try:
        found = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        # NumPy would advise to load objects all the same.
        checks.refuse(
            "the tokens cannot be read",
            got=f"{source}: " + ("an array of Python objects" if "pickle" in str(error) else str(error)),
            expected="an array of numbers, whole; objects are never loaded",
            remedy="write the file again: np.save('tokens.npy', np.asarray(array, 'float32'))",
        )
    if found.dtype.kind not in "fiu":
        checks.refuse(
            "the file of tokens holds no array of real numbers",
            got=f"{source}: dtype {found.dtype}",
            expected="one array of shape (n, d)",
            remedy="np.save('tokens.npy', array.astype('float32'))",
        )
    return found.astype(dtype)


@dataclasses.dataclass(frozen=True)
class Asked:
    """What is asked of a model.

    **Arguments:** `model`, as of `mf.models.load`; `given`, the input; `depth`, to which the layers are repeated (None:
    1000 if they are all the same, else not at all; 0: not at all); `draws` of each null model; `seed`; `dtype`,
    "float32" or "float64"; `cut`: whether a text that is too long is cut, in place of refused.
    """

    model: str
    given: Given
    depth: int | None = None
    draws: int = 8
    seed: int = 0
    dtype: str = "float32"
    cut: bool = True

    def __post_init__(self) -> None:
        checks.whole(self.draws, "draws")
        checks.whole(0 if self.depth is None else self.depth, "depth", least=0)
        checks.whole(self.seed, "seed", least=0)
        checks.one_of(self.dtype, "this dtype", ("float32", "float64"))

    @cached_property
    def place(self) -> Path:
        """The folder, or the file, of the model."""
        from ..models.config import read_config
        from ..models.places import find
        from ..models.readers import READERS

        return find(self.model, lambda folder: read_config(folder, READERS))

    @property
    def name(self) -> str:
        """A short name of the model."""
        inside = self.place.is_dir()  # first: what is no place is refused there
        typed = Path(self.model).expanduser()
        if typed.exists():
            typed = typed.resolve()
            typed = typed.parent if inside and typed.is_file() else typed
            return typed.stem if typed.is_file() else typed.name
        return self.model.removeprefix("package:").rstrip("/").rsplit("/", 1)[-1]

    @property
    def stem(self) -> str:
        """A name for the folder: of the model, and of the input."""
        words = f"{self.name}-{Path(self.given.source).stem or 'text'}"
        return re.sub(r"[^\w.-]+", "-", words).strip("-.") or "model"

    @property
    def settings(self) -> dict[str, Any]:
        """What `run.json` says of it."""
        about = {"kind": self.given.kind, "source": self.given.source}
        about["sha256"] = hashlib.sha256(self.given.data).hexdigest()
        plain = {name: getattr(self, name) for name in ("depth", "draws", "seed", "dtype", "cut")}
        return {"model": self.model, "input": about, **plain}

    @cached_property
    def mark(self) -> str:
        """A hash of the settings, the input and the model, wherever they lie."""
        settings = self.settings
        about = settings | {"model": _files(self.place), "input": [settings["input"][n] for n in ("kind", "sha256")]}
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _files(place: Path) -> dict[str, Any]:
    """What tells a model from others: the content of its files, for a model trained on has files of the same sizes."""
    if place.is_file():
        return {"checkpoint": _digest(place)}
    return {file.name: _digest(file) for file in place.iterdir() if file.suffix in FILES and file.is_file()}


def _digest(file: Path) -> list[Any]:
    """A hash of a file; of a very large one, of its two ends, with its size and the time when it was written."""
    size, time_ns = file.stat().st_size, file.stat().st_mtime_ns
    with file.open("rb") as stream:
        if size <= LARGE:
            return [hashlib.file_digest(stream, "sha256").hexdigest()]
        ends = hashlib.sha256(stream.read(END))
        stream.seek(-END, io.SEEK_END)
        ends.update(stream.read(END))
        return [ends.hexdigest(), size, time_ns]


def free_folder(asked: Asked) -> Path:
    """`runs/MODEL-INPUT`, or with a number behind it, if that holds another run."""
    for number in itertools.count(1):
        path = Path("runs") / (asked.stem if number == 1 else f"{asked.stem}-{number}")
        folder = RunFolder(path)
        if not folder.exists() or holds(folder, asked.mark):
            return path
    raise AssertionError("numbers do not end")


def analyse(asked: Asked, path: str | Path, *, command: str = "", watch: Watch = QUIET) -> RunFolder:
    """Analyse a model on an input into the folder `path`, or go on with it there; stage after stage, each kept as soon
    as it is done. A folder that holds another run is refused; one that is done is left as it is.
    """
    folder = RunFolder(path)
    check_free(folder, asked.mark)
    if folder.exists() and folder.status == "done":
        return folder
    from ..models.transformer import load
    from .model_parts import STAGES, Work, results_of

    began = time.monotonic()
    watch.stage(f"loading {asked.name}", 0.0)
    model = dataclasses.replace(load(asked.place, dtype=asked.dtype), name=asked.name)
    record, cut_from = asked.given.record(model, asked.dtype, asked.cut)
    if cut_from is not None:
        watch.say(f"the text has {cut_from} tokens, {asked.name} takes {record.n}: the rest is cut off")
    loading = time.monotonic() - began
    with interruptible(folder.path), holding(folder):
        about = _about(asked, model.kind, command, [stage.name for stage in STAGES])
        begin(folder, about, {asked.given.copy: asked.given.data})
        source = {"kind": asked.given.kind, "source": asked.given.source, "cut_from": cut_from}
        work = Work(record, asked.seed, asked.draws, asked.depth, folder, source)
        made = provenance()
        made_by = {name: made[name] for name in ("versions", "commit")}
        spent, total = 0.0, sum(stage.cost for stage in STAGES)
        for stage in STAGES:
            item = read_item(folder, stage.name)
            if item is None or "found" not in item or item["made_by"] != made_by:

                def tell(share: float, words: str = "", stage: Any = stage, spent: float = spent) -> None:
                    watch.stage(words or stage.title, (spent + stage.cost * min(share, 1.0)) / total)

                tell(0.0)
                item = work.do(stage, tell) | {"made_by": made_by}
                with disk.explained(folder.path, "the stages that are done"):
                    folder.put(f"items/{stage.name}.json", item)
            work.found |= item["found"]
            work.items[stage.name] = item
            spent += stage.cost
        write_results(folder, results_of(work, loading))
    return folder


def _about(asked: Asked, kind: str, command: str, stages: list[str]) -> dict[str, Any]:
    """What `run.json` says."""
    source = asked.given.source
    title = f"{asked.name} on {source}" if source else f"{asked.name} on a text"
    return {
        "kind": "model",
        "name": asked.stem,
        "title": title,
        "about": "",
        "command": command,
        "seed": asked.seed,
        "cites": [*CITES, *([PAPERS[kind]] if kind in PAPERS else [])],
        "experiment": asked.settings,
        "experiment_hash": asked.mark,
        "source": None,
        "base": str(Path.cwd()),
        "input": asked.given.copy,
        "items": stages,
    }


def resume_model(path: str | Path, watch: Watch = QUIET) -> RunFolder:
    """Go on with the run in a folder, from the copy of its input."""
    folder = RunFolder(path)
    record = folder.record
    if folder.status == "done":
        return folder
    asked = _asked_again(folder, record)
    if asked.mark != record["experiment_hash"]:
        changed = hashlib.sha256(asked.given.data).hexdigest() != record["experiment"]["input"]["sha256"]
        raise FolderError(
            f"{asked.given.path} has changed since the run began"
            if changed
            else f"the files of the model {asked.model} have changed since the run began",
            safe="the stages that are done, in the folder items",
            remedy="put back what was there, or begin anew in another folder",
        )
    return analyse(asked, folder.path, command=record["command"], watch=watch)


def _asked_again(folder: RunFolder, record: Mapping[str, Any]) -> Asked:
    """What was asked, read from a folder."""
    settings = dict(record["experiment"])
    about, file = settings.pop("input"), folder.path / record["input"]
    try:
        data = disk.read(record["input"], folder.path, most=disk.LARGEST)
    except OSError as error:
        raise FolderError(
            f"the input of the run in {folder.path} is gone: {file.name}",
            safe="the stages that are done, in the folder items",
            remedy=f"give the same command again: {record['command'] or 'meanformer model'}",
        ) from error
    beside = Path(record["base"]) / settings["model"]
    if beside.exists():  # a path counts from where the command was given
        settings["model"] = str(beside)
    return Asked(given=Given(about["kind"], data, about["source"], file), **settings)
