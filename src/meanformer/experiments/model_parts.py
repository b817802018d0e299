"""The stages of the analysis of a model. Each takes a `Work` and gives a part of `results.json`."""

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import _checks as checks
from ..models.record import TransformerRecord
from ..store.folder import RunFolder

# The parts of results.json; what a stage could not give is null.
PARTS = (
    "curves",
    "spectrum",
    "bands",
    "attention",
    "most_seen",
    "closure",
    "heads",
    "fates",
    "deep",
    "map",
    "figures",
)
DEEP = 1000
# Low, middle and high line of a band.
QUANTILES = {"low": 0.05, "middle": 0.5, "high": 0.95}
# Digits of coordinates on a map, which are for the eye.
DIGITS = 5


class Stage(NamedTuple):
    """A stage: its name, what it is called while it runs, about how long it takes, and what it computes."""

    name: str
    title: str
    cost: float
    compute: "Callable[[Work], dict[str, Any]]"


@dataclasses.dataclass
class Work:
    """A model on an input, and what has been found so far."""

    record: TransformerRecord
    seed: int
    draws: int
    depth: int | None
    folder: RunFolder
    source: Mapping[str, Any]
    found: dict[str, Any] = dataclasses.field(default_factory=dict)
    items: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    tell: Callable[..., None] = lambda share, words="": None

    def do(self, stage: Stage, tell: Callable[..., None]) -> dict[str, Any]:
        """What a stage finds, ready for JSON; what it cannot do becomes a note."""
        began = time.monotonic()
        self.notes, self.tell = [], tell
        try:
            found = stage.compute(self)
        except checks.InputError as refusal:
            found = {}
            self.notes.append(f"No {stage.title}: {refusal.what}.")
        item = {"name": stage.name, "found": plain(found), "notes": self.notes}
        return item | {"seconds": time.monotonic() - began, "peak_bytes": peak_bytes()}

    def key(self, number: int) -> jax.Array:
        """A random key for each use: what a stage draws does not depend on the stages before it."""
        return jax.random.fold_in(jax.random.key(self.seed), number)


def plain(value: Any) -> Any:
    """A value as JSON has it: lists for arrays, null for what is not finite, pairs for complex numbers."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if hasattr(value, "dtype"):
        return plain(np.asarray(value).tolist())
    if isinstance(value, complex):
        return [plain(value.real), plain(value.imag)]
    return value if isinstance(value, int) or np.isfinite(value) else None


def peak_bytes() -> int | None:
    """The most memory that this process has had; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _curves(work: Work) -> dict[str, Any]:
    from ..models.curves import along

    found = along(work.record)
    attention = {name: getattr(found, name) for name in ("entropy", "attention_rank", "leaders", "energy")}
    if np.isnan(found.entropy).all():
        work.notes.append(f"No attention matrices: {work.record.n} tokens are too many for them.")
    return {
        "curves": _over_depth(found),
        "spectrum": found.spectrum,
        "attention": None if np.isnan(found.entropy).all() else attention,
    }


def _over_depth(found: Any) -> dict[str, np.ndarray]:
    names = ("effective_rank", "participation_ratio", "average_cosine", "isoscore", "clusters", "norm", "spread")
    return {name: np.asarray(getattr(found, name)) for name in names}


def _most_seen(work: Work) -> dict[str, Any]:
    from ..models.curves import most_seen

    layers = range(work.record.depth)
    return {"most_seen": [{"layer": layer, "tokens": most_seen(work.record, layer)} for layer in layers]}


def _bands(work: Work) -> dict[str, Any]:
    from ..models.curves import along
    from ..models.nulls import gaussian_tokens, random_weights

    bands = {}
    nulls = {"random weights": random_weights, "Gaussian tokens": gaussian_tokens}
    for number, (name, null) in enumerate(nulls.items()):
        drawn = []
        for draw in range(work.draws):
            work.tell((number + draw / work.draws) / len(nulls), f"null: {name}, draw {draw + 1} of {work.draws}")
            null_record = null(work.record, key=work.key(2 * draw + number))
            drawn.append(_over_depth(along(null_record, attention=False)))
        bands[name] = {curve: _quantiles([one[curve] for one in drawn]) for curve in drawn[0]}
    return {"bands": bands}


def _quantiles(draws: Any) -> dict[str, np.ndarray]:
    return {name: np.quantile(np.asarray(draws, np.float64), q, axis=0) for name, q in QUANTILES.items()}


def _closure(work: Work) -> dict[str, Any]:
    from ..models.closures import closure

    found = closure(work.record, draws=work.draws, key=work.key(-1 % 2**32), progress=work.tell)
    same = ("error", "mean_only", "layer_error", "layer_mean_only", "logit_size", "tilt")
    part = {name: getattr(found, name) for name in same}
    for null in ("random", "matched", "resampled"):
        # An error says something beside that of the mean value only, so nulls have theirs too.
        errors, means = getattr(found, f"layer_{null}"), getattr(found, f"layer_{null}_mean_only")
        ratios = np.divide(errors, means, out=np.full(np.shape(errors), np.nan), where=np.asarray(means) > 0)
        part |= {null: _quantiles(errors), f"{null}_mean_only": _quantiles(means), f"{null}_ratio": _quantiles(ratios)}
        for name in (null, f"{null}_mean_only"):
            part[f"{name}_heads"] = {"middle": np.median(np.asarray(getattr(found, name)), axis=0)}
    return {"closure": part}


def _heads(work: Work) -> dict[str, Any]:
    from ..models.spectra import head_facts

    return {"heads": [_table(facts) for facts in head_facts(work.record)]}


def _fates(work: Work) -> dict[str, Any]:
    from ..models.frozen import frozen_fates

    return {"fates": [_table(fate) for fate in frozen_fates(work.record, progress=work.tell)]}


def _table(value: Any) -> dict[str, Any]:
    """A record with names, as a table."""
    return (
        value._asdict()
        if hasattr(value, "_asdict")
        else {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    )


def _deep(work: Work) -> dict[str, Any]:
    """The depth beyond the model, and, for its tokens are at hand, the map of all depths."""
    from ..models.deep import extrapolate

    depth = (DEEP if work.record.model.tied else 0) if work.depth is None else work.depth
    if depth == 0:
        return {"deep": None}
    found = extrapolate(work.record, depth, progress=work.tell)
    names = ("layers", "average_cosine", "effective_rank", "near_pairs", "groups", "move", "apart", "ending", "period")
    part = {name: getattr(found, name) for name in (*names, "words")}
    return {"deep": part, **_map(work, dict(zip(found.state_layers.tolist(), found.states, strict=True)))}


def _map(work: Work, beyond: Mapping[int, Any] | None = None) -> dict[str, Any]:
    """The map of the tokens at all depths of the model, on one plane with those at depths `beyond` it."""
    if work.found.get("map"):
        return {}
    from ..models.projection import token_map

    record = work.record
    states = [np.asarray(record.start.points), *(np.asarray(layer.after.points) for layer in record.stream())]
    beyond = {layer: x for layer, x in (beyond or {}).items() if layer > record.depth}
    # Where layers are all the same, depths beyond the model are its own too; else they are only seen on its plane.
    leading = None if record.model.tied else len(states)
    found = token_map([*states, *beyond.values()], record.start.weights, leading=leading)
    points, inside = found.points.round(DIGITS), len(states)
    deep = {"layers": list(beyond), "points": points[inside:], "explained": found.explained[inside:]}
    parts = {"points": points[:inside], "explained": found.explained[:inside], "deep": deep if beyond else None}
    return {"map": parts}


def _figures(work: Work) -> dict[str, Any]:
    from ..plots.models import PICTURES, draw_model

    count = iter(range(len(PICTURES)))
    told = lambda words: work.tell(next(count) / len(PICTURES), words)  # noqa: E731
    return {"figures": draw_model(so_far(work), work.folder.put, told)}


# Costs are relative, as six layers on 512 tokens have them.
STAGES = (
    Stage("curves", "curves over depth", 5.0, _curves),
    Stage("attention", "attention", 0.5, _most_seen),
    Stage("bands", "null bands", 6.0, _bands),
    Stage("closure", "Gaussian closure", 3.0, _closure),
    Stage("heads", "heads", 1.0, _heads),
    Stage("fates", "fates of frozen layers", 20.0, _fates),
    Stage("deep", "depth extrapolation", 5.0, _deep),
    Stage("map", "map of tokens", 0.5, _map),
    Stage("figures", "figures", 1.0, _figures),
)


def so_far(work: Work) -> dict[str, Any]:
    """The model, the input, and what the stages have found, as `results.json` has it."""
    record, model = work.record, work.record.model
    facts: dict[str, Any] = {name: getattr(model, name) for name in ("name", "kind", "depth", "heads", "d", "k")}
    facts |= {"causal": model.causal, "tied": model.tied, "pre": model.blocks[0].pre}
    weights = np.asarray(record.start.weights)
    given = {**work.source, "n": record.n, "labels": list(record.labels), "grid": record.tokens.grid}
    given["weights"] = None if (weights == weights[0]).all() else weights
    return plain({"model": facts, "input": given, "draws": work.draws, **dict.fromkeys(PARTS), **work.found})


def results_of(work: Work, loading: float) -> dict[str, Any]:
    """All that was found; `loading`: how long the model took to load, in seconds."""
    found, items, cut_from = so_far(work), work.items.values(), work.source["cut_from"]
    n, depth, heads = found["input"]["n"], found["model"]["depth"], found["model"]["heads"]
    seconds = loading + sum(item["seconds"] for item in items)
    peaks = [item["peak_bytes"] for item in items if item["peak_bytes"] is not None]
    notes = [note for item in items for note in item["notes"]]
    if cut_from is not None:
        notes.insert(0, f"The text has {cut_from} tokens, the model takes {n}: the rest is cut off.")
    numbers = _numbers(found) | {"tokens": n, "layers": depth, "heads": heads * depth}
    words = f"{n} tokens through {depth} layers" + _summary(numbers)
    return {
        "summary": words,
        **found,
        "notes": notes,
        "numbers": numbers | {"seconds": seconds},
        "seconds": seconds,
        "peak_bytes": max(peaks, default=None),
    }


def _numbers(found: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers for tables."""
    numbers: dict[str, float | None] = {}
    for name in ("average_cosine", "effective_rank"):
        curve = (found["curves"] or {}).get(name)
        if curve:
            numbers |= {f"{name}_first": curve[0], f"{name}_last": curve[-1]}
    closure = found["closure"]
    if closure:
        pairs = [
            pair for row in zip(closure["error"], closure["mean_only"], strict=True) for pair in zip(*row, strict=True)
        ]
        pairs = [(error, mean) for error, mean in pairs if error is not None and mean is not None]
        if pairs:
            numbers["closure_error"] = statistics.median(error for error, _ in pairs)
            numbers["mean_only_error"] = statistics.median(mean for _, mean in pairs)
            numbers["closure_beats_mean"] = sum(error < mean for error, mean in pairs) / len(pairs)
    return numbers


def _summary(numbers: Mapping[str, Any]) -> str:
    parts = []
    for name, words in (("average_cosine", "average cosine"), ("effective_rank", "effective rank")):
        first, last = numbers.get(f"{name}_first"), numbers.get(f"{name}_last")
        if first is not None and last is not None:
            parts.append(f"{words} {first:.3g} to {last:.3g}")
    if "closure_error" in numbers:
        share = round(numbers["closure_beats_mean"] * numbers["heads"])
        parts.append(f"the Gaussian closure beats the mean in {share} of {numbers['heads']} heads")
    return ": " * bool(parts) + ", ".join(parts)
