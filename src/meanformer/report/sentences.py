"""What the numbers of a model's analysis say, in sentences."""

from collections.abc import Mapping
from typing import Any

from ..plots.depth import chaotic
from .page import number_text

Results = Mapping[str, Any]
# With fewer draws of a null, a value outside of their range says nothing.
FEW_DRAWS = 8
# What the closure is compared with.
CLOSURES = {
    "random": "random weights",
    "matched": "random weights with logits as large",
    "resampled": "Gaussian tokens",
}


def of(count: Any, words: str) -> str:
    """So many of them; nothing if it is not known."""
    return "" if count is None else f"{count} {words}"


def about_result(results: Results) -> list[str]:
    """The paragraphs at the top: what was found, beside what it is compared with."""
    told = [_alignment(results), _closure(results), _fates(results), _deep(results)]
    return [words for words in told if words]


def about_depth(results: Results) -> list[str]:
    """What the curves are, and what their nulls are."""
    words = ["The cloud of tokens before the first layer, and after each. Depth counts the layers passed."]
    if results.get("bands"):
        words.append(
            "Two nulls tell what training and words have to do with it. Random weights: all matrices and biases are "
            "replaced by Gaussian ones of the same Frobenius norm, and the same tokens go through. Gaussian tokens: "
            "the weights are the model's, and the first tokens are as many draws from the Gaussian with the mean and "
            "covariance of the true ones; being few, they fill fewer directions from the start."
        )
    return words


_CURVES = {"average_cosine": "the average cosine of two tokens", "effective_rank": "the effective rank"}


def _alignment(results: Results) -> str:
    parts = []
    for name, words in _CURVES.items():
        curve = (results.get("curves") or {}).get(name)
        if curve and None not in (curve[0], curve[-1]):
            first, last = (number_text(float(x), 3) for x in (curve[0], curve[-1]))
            parts.append(f"{words} goes from {first} to {last}{_against(results, name, float(curve[-1]))}")
    depth = (results.get("model") or {}).get("depth")
    return f"Over {depth} layers {'; '.join(parts)}.{_few_tokens(results)}" if parts else ""


def _against(results: Results, name: str, value: float) -> str:
    """Where a last value lies relative to the bands of the nulls: a verdict only if there are draws enough."""
    found, draws = [], results.get("draws")
    for null, curves in (results.get("bands") or {}).items():
        band = (curves or {}).get(name) or {}
        ends = [(band.get(key) or [None])[-1] for key in ("low", "high")]
        if None not in ends:
            low, high = map(float, ends)  # type: ignore[arg-type]
            place = "below the " if value < low else "above the " if value > high else "within the "
            place = "" if draws is not None and draws < FEW_DRAWS else place
            found.append(f"{place}{number_text(low, 3)} to {number_text(high, 3)} of {of(draws, 'draws of ')}{null}")
    return f" ({', '.join(found)})" if found else ""


def _few_tokens(results: Results) -> str:
    """What is to be kept in mind of the Gaussian null where tokens are fewer than dimensions."""
    n, d = (results.get("input") or {}).get("n"), (results.get("model") or {}).get("d")
    if not results.get("bands") or n is None or d is None or n > d:
        return ""
    return (
        f" Mind that {n} Gaussian tokens, drawn from a covariance of {n} tokens, fill fewer directions from the start, "
        "and lean to their mean: also truly Gaussian tokens lie outside of their band."
    )


def _closure(results: Results) -> str:
    closure = results.get("closure") or {}
    layers, means = closure.get("layer_error"), closure.get("layer_mean_only")
    if not layers or not means or None in (*layers, *means):
        return ""
    better = sum(error < mean for error, mean in zip(layers, means, strict=True))
    ratios = [error / mean for error, mean in zip(layers, means, strict=True) if mean > 0]
    medians = {name: (closure.get(f"{null}_ratio") or {}).get("middle") or [None] for null, name in CLOSURES.items()}
    nulls = [f"{_range(found)} for {name}" for name, found in medians.items() if None not in found]
    beside = f" (nulls, median: {', '.join(nulls)})" if nulls else ""
    gain = f" The error is {_range(ratios)} times that of the mean value{beside}." if ratios else ""
    worse = sum(error > 1 for error in layers)
    beyond = f"; in {worse} it is worse than predicting nothing" if worse else ""
    return (
        f"The Gaussian closure predicts what attention adds to the tokens with relative errors of {_range(layers)} "
        f"({_range(means)} for the mean value alone). It beats the mean value in {better} of {len(layers)} "
        f"layers{beyond}.{gain}"
    )


def _range(values: Any) -> str:
    """The least and the largest of these numbers."""
    low, high = (number_text(float(x), 3) for x in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _fates(results: Results) -> str:
    fates = results.get("fates") or []
    times = [float(fate["time"]) for fate in fates if fate.get("time") is not None]
    if not fates or not times:
        return ""
    pre = (results.get("model") or {}).get("pre")
    unit = " in the frame of the normalised tokens, which is not in layers" if pre else " layers"
    return (
        "With frozen weights, and without normalisations and perceptrons, the Gaussian flow of "
        f"{len(times)} of {len(fates)} layers blows up, at a time of {_range(times)}{unit}."
    )


def _deep(results: Results) -> str:
    deep = results.get("deep") or {}
    if not deep.get("layers"):
        return ""
    near, groups, rank = ((deep.get(name) or [None])[-1] for name in ("near_pairs", "groups", "effective_rank"))
    parts = [] if near is None else [f"{100 * near:.3g} % of the pairs of tokens have a cosine above 0.99"]
    parts += (
        []
        if groups is None
        else ["there is 1 group of near tokens" if groups == 1 else f"there are {groups:g} groups of near tokens"]
    )
    parts += [] if rank is None else [f"the effective rank is {number_text(float(rank), 3)}"]
    draw = (
        " This is one draw of a chaotic map: a copy of the tokens that began a millionth apart is elsewhere, and would "
        "have other numbers."
    )
    words = f"Repeated to {deep['layers'][-1]:,} layers: {', '.join(parts)}."
    return words + draw * chaotic(deep) if parts else ""
