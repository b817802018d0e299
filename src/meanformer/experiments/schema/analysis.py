"""The shape of `results.json` of a model's analysis: which tables there are, and how long their rows are."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from ...store.shapes import Part
from .contents import FromList, Results, Whole


def _rectangular(rows: Sequence[Any]) -> Sequence[Any]:
    _alike("rows", map(len, rows))
    return rows


def _alike(what: str, lengths: Iterable[int]) -> None:
    """Refuse different lengths of what is shown side by side."""
    found = sorted(set(lengths))
    if len(found) > 1:
        raise ValueError(f"{what} have different lengths, {found[0]} and {found[-1]}")


def _lengths(values: Iterable[Sequence[Any] | None]) -> list[int]:
    """The lengths of those that are there."""
    return [len(value) for value in values if value]


Curve = list[float | None]
"""A number for each depth, or for each layer."""
Heads = Annotated[list[Curve], AfterValidator(_rectangular)]
"""A row for each layer, a number for each head."""
Coordinate = Annotated[float, Field(ge=-1e6, le=1e6)]
Point = Annotated[tuple[Coordinate, Coordinate], FromList]
Cloud = Annotated[list[Point], Field(min_length=1)]
Clouds = Annotated[list[Cloud], AfterValidator(_rectangular)]
"""A cloud of points on the map for each depth."""
Side = Annotated[int, Field(ge=1, le=10**6)]
Share = Annotated[float, Field(ge=0, le=1 + 1e-9)]


class Band(Part):
    """The range of a null, and its median."""

    low: Curve | None = None
    middle: Curve | None = None
    high: Curve | None = None

    @model_validator(mode="after")
    def _same_length(self) -> Any:
        lengths = [0 if part is None else len(part) for part in (self.low, self.middle, self.high)]
        if self.middle and len(set(lengths)) > 1:
            raise ValueError("low, middle and high have different lengths")
        return self


class Model(Part):
    """What the model is."""

    name: str | None = None
    kind: str | None = None
    depth: Whole | None = None
    heads: Whole | None = None
    d: Whole | None = None
    k: Whole | None = None
    causal: bool | None = None
    tied: bool | None = None
    pre: bool | None = None


class Input(Part):
    """What it was given."""

    kind: str | None = None
    source: str | None = None
    n: Whole | None = None
    labels: list[str] | None = None
    weights: list[float] | None = None
    grid: Annotated[tuple[Side, Side], FromList] | None = None
    cut_from: Whole | None = None


class Head(Part):
    """The matrices of a head."""

    layer: Whole
    head: Whole
    inertia: list[Whole] | None = None
    positive_share: float | None = None
    symmetry: float | None = None
    logit_scale: float | None = None
    ov: list[Annotated[tuple[float, float], FromList]] | None = None
    ov_radius: float | None = None
    ov_abscissa: float | None = None
    ov_trace: float | None = None


class Fate(Part):
    """What becomes of a frozen layer."""

    layer: Whole
    ending: str
    time: float | None = None
    bound: float | None = None
    growth: float | None = None
    rank: float | None = None
    words: str | None = None


Pair = Annotated[tuple[str, float], FromList]
Triple = Annotated[tuple[str, float, float | None], FromList]


class Seen(Part):
    """The tokens that a layer looks at most: a name, a share, and how many times what is expected."""

    layer: Whole
    tokens: list[Pair | Triple] | None = None


class Closure(Part):
    """The errors of the Gaussian closure."""

    error: Heads
    mean_only: Heads
    layer_error: Curve
    layer_mean_only: Curve
    logit_size: Heads | None = None
    tilt: Heads | None = None

    @model_validator(mode="after")
    def _same_layers(self) -> Any:
        nulls = [key for null in ("random", "matched", "resampled") for key in (null, f"{null}_mean_only")]
        for key in [name for null in nulls for name in (null, f"{null}_ratio")]:
            band = getattr(self, key, None)
            if band is not None:
                _alike("the layers of the closure", [len(self.error), *_lengths([Band.model_validate(band).middle])])
        tables = [self.error, self.mean_only, self.logit_size, self.tilt]
        for key in nulls:
            by_head = getattr(self, f"{key}_heads", None)
            tables.append(None if by_head is None else ByHead.model_validate(by_head).middle)
        _alike("the layers of the closure", [len(self.layer_error), len(self.layer_mean_only), *_lengths(tables)])
        _alike("the heads of the closure", [len(table[0]) for table in tables if table])
        return self


class ByHead(Part):
    """The medians of a null, head by head."""

    middle: Heads | None = None


class Deep(Part):
    """Numbers beyond the depth of the model."""

    layers: list[Whole] | None = None
    words: str | None = None
    average_cosine: Curve | None = None
    near_pairs: Curve | None = None
    effective_rank: Curve | None = None
    groups: Curve | None = None
    move: Curve | None = None
    apart: Curve | None = None

    @model_validator(mode="after")
    def _same_depths(self) -> Any:
        curves = [getattr(self, name) for name in ("average_cosine", "near_pairs", "effective_rank", "groups")]
        _alike("the curves of the depth beyond", _lengths([self.layers, *curves, self.move, self.apart]))
        return self


class Beyond(Part):
    """The map at depths beyond the model."""

    layers: list[Whole]
    points: Clouds
    explained: list[Share] | None = None

    @model_validator(mode="after")
    def _same_depths(self) -> Any:
        _alike("the depths of the map", [len(self.layers), len(self.points), *_lengths([self.explained])])
        return self


class Map(Part):
    """The map of the tokens, layer by layer."""

    points: Clouds | None = None
    explained: list[Share] | None = None
    deep: Beyond | None = None

    @model_validator(mode="after")
    def _same_tokens(self) -> Any:
        if self.points:
            _alike("the depths of the map", [len(self.points), *_lengths([self.explained])])
            beyond = self.deep.points[:1] if self.deep else []
            _alike("the clouds of the map", map(len, [self.points[0], *beyond]))
        return self


class Analysis(Results):
    """Of a model."""

    model: Model | None = None
    input: Input | None = None
    draws: Whole | None = None
    curves: dict[str, Curve] | None = None
    spectrum: Heads | None = None
    bands: dict[str, dict[str, Band] | None] | None = None
    attention: dict[str, Heads | None] | None = None
    most_seen: list[Seen] | None = None
    closure: Closure | None = None
    heads: list[Head] | None = None
    fates: list[Fate] | None = None
    deep: Deep | None = None
    map: Map | None = None
    peak_bytes: Whole | None = None

    @model_validator(mode="after")
    def _same_sizes(self) -> Any:
        depths = _lengths([*(self.curves or {}).values(), self.spectrum])
        _alike("the curves over depth", depths)
        tables = [table for table in (self.attention or {}).values() if table]
        _alike("the tables of attention", map(len, tables))
        _alike("the tables of attention", (len(table[0]) for table in tables))
        given, points = self.input or Input(), self.map.points if self.map else None
        tokens = [len(points[0])] if points else []
        _alike("the names and the places of tokens", tokens + _lengths([given.labels, given.weights]))
        return self
