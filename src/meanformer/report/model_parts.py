"""The parts of a model's report: its curves, the closure, heads, attention, frozen layers, and the depth beyond."""

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..plots.tokenmap import shown
from .page import Block, Markup, Section, number_text, plain_text
from .sentences import CLOSURES, about_depth
from .tokenmap import short

Results = Mapping[str, Any]
Figures = Mapping[str, Callable[..., Markup]]
"""The pictures by name, to be put into the page where they belong; `whole=True` takes the full width."""

COLUMNS = {
    "average_cosine": "average cosine",
    "effective_rank": "effective rank",
    "participation_ratio": "participation ratio",
    "isoscore": "IsoScore",
    "clusters": "groups",
    "norm": "mean length",
    "spread": "trace of covariance",
}


def add_depth(section: Section, results: Results, figures: Figures) -> None:
    """The cloud of tokens over depth, between its nulls."""
    section.text(*about_depth(results))
    _add_figures(section, figures, [name for name in figures if name.startswith("curve-")] + ["spectrum"])
    curves = {name: values for name, values in (results.get("curves") or {}).items() if name in COLUMNS}
    rows = [(layer, *values) for layer, values in enumerate(zip(*curves.values(), strict=True))]
    section.details("All numbers over depth").table(("layers passed", *(COLUMNS[name] for name in curves)), rows)


def add_closure(section: Section, results: Results, figures: Figures) -> None:
    """The Gaussian closure against what attention does."""
    closure = results["closure"]
    section.text(
        "If the tokens that a head sees were a Gaussian, its output would be affine in the query, and known from their "
        "mean and covariance alone:"
    )
    section.display(r"\sum_jP_{ij}\,v_j\ \approx\ \bar{v}+\mathrm{Cov}(v,k)\,q_i/\tau.")
    section.text(
        "This is what the Gaussian theory is built on. The error is relative to the true output of the head, as it is "
        "added to the stream, without the bias. Two numbers tell what it is worth: 1 is the error of predicting "
        "nothing, and the mean value $\\bar{v}$ alone, as if attention were uniform, leaves out the second term."
    )
    if (results.get("model") or {}).get("causal"):
        section.text("The mean and the covariance are, for each token, those of the tokens that it sees.")
    section.text(
        "Where the output of a layer hardly differs from token to token, the mean value predicts most of it, and both "
        "errors are small. So the nulls have mean values of their own, and what can be compared is the ratio of the "
        "error of the closure to that of the mean value. The closure is the better the smaller the logits are, and "
        "random weights have logits of other sizes; so one null has random weights with logits as large as the model's."
    )
    _add_figures(section, figures, ["closure-ratio", "closure-layers", "closure-heads"])
    nulls = {null: name for null, name in CLOSURES.items() if closure.get(null)}
    rows, ratios = [], []
    for layer, error in enumerate(closure["layer_error"]):
        errors, means = closure["error"][layer], closure["mean_only"][layer]
        helped = sum(e is not None and m is not None and e < m for e, m in zip(errors, means, strict=True))
        mean = closure["layer_mean_only"][layer]
        pairs = [_pair(*(_middle(closure, key, layer) for key in (null, f"{null}_mean_only"))) for null in nulls]
        rows.append((layer, _pair(error, mean), *pairs, f"{helped} of {len(errors)}"))
        ratio = error / mean if error is not None and mean else None
        ratios.append((layer, ratio, *(_band(closure.get(f"{null}_ratio"), layer) for null in nulls)))
    section.table(
        ("layer", "the model", *nulls.values(), "heads where it beats the mean"),
        rows,
        "Relative errors of whole layers: of the closure / of the mean value alone; of nulls, medians.",
    )
    section.table(
        ("layer", "the model", *nulls.values()),
        ratios,
        "The error of the closure over that of the mean value, below 1 if it helps; nulls as median (5 to 95 %).",
    )
    tables = {"closure": closure.get("error"), "mean value": closure.get("mean_only")}
    for null, name in CLOSURES.items():
        for key, word in ((null, name), (f"{null}_mean_only", f"{name}: mean value")):
            tables[word] = (closure.get(f"{key}_heads") or {}).get("middle")
    tables |= {"size of logits": closure.get("logit_size"), "tilt": closure.get("tilt")}
    words = (
        r"The size of logits is $\|\Sigma^{1/2}A\,\Sigma^{1/2}\|/\tau$ with $A=K^\top Q$. Sums over $n$ Gaussian "
        r"tokens tend to their limit like $n^{-1/2}$ where it is below $1/\sqrt{2}$; where it is large a few decide. "
        "The tilt is the standard deviation of the logits of the mean query."
    )
    _add_by_head(section, tables, words)


def _middle(closure: Mapping[str, Any], key: str, layer: int) -> float | None:
    middle = (closure.get(key) or {}).get("middle")
    return middle[layer] if middle else None


def _pair(error: float | None, mean_only: float | None) -> str:
    """An error, beside that of the mean value."""
    return " / ".join("—" if value is None else number_text(value, 3) for value in (error, mean_only))


def _band(band: Mapping[str, Any] | None, layer: int) -> str:
    if not band or not band.get("middle"):
        return "—"
    found = [band[key][layer] for key in ("low", "middle", "high")]
    low, middle, high = ("—" if value is None else number_text(value, 3) for value in found)
    return f"{middle} ({low} to {high})"


def add_heads(section: Section, results: Results, figures: Figures) -> None:
    """What the matrices of the heads tell."""
    heads = results["heads"]
    words = Block()
    words.text(
        r"A head looks with $A=K^\top Q$ and moves tokens with $OV$. The theorems are sharpest where the symmetric "
        r"part of $A$ is definite, so that tokens attract or repel, and where the spectrum of $OV$ lies on one side. "
        "The pictures show how far the heads of this model are from that."
    )
    inertias = {tuple(head.get("inertia") or ()) for head in heads} - {()}
    if len(inertias) == 1:
        p, m, zero = (*next(iter(inertias)), 0, 0, 0)[:3]
        words.text(
            f"In all heads $\\mathrm{{sym}}(A)$ has {p} positive, {m} negative and {zero} zero eigenvalues. This is no "
            r"fact about training: with keys of dimension $k\leq d/2$ it is so for almost all matrices (Sylvester's "
            "law). The sizes of the eigenvalues are what differs."
        )
    section.beside(words, [figures["symmetry"]()] if "symmetry" in figures else [])
    _add_figures(section, figures, ["ov"])
    inner = section.details(f"All {len(heads)} heads")
    names = {"positive_share": "positive share", "symmetry": "symmetry", "logit_scale": "scale of logits"}
    names |= {"ov_radius": "OV radius", "ov_abscissa": "OV abscissa", "ov_trace": "OV trace"}
    rows = [(h.get("layer"), h.get("head"), *(h.get(key) for key in names), _inertia(h)) for h in heads]
    _add_sortable(inner, ("layer", "head", *names.values(), "inertia"), rows)


def _inertia(head: Mapping[str, Any]) -> str:
    return ", ".join(str(part) for part in head.get("inertia") or ())


def add_attention(section: Section, results: Results, figures: Figures) -> None:
    """How sharp attention is, and who is looked at."""
    _add_figures(section, figures, ["entropy", "leaders"])
    seen = results.get("most_seen") or []
    if seen:
        told = "The tokens that are most looked at, with the share of all attention of the layer that they get"
        if any(len(token) > 2 for row in seen for token in row.get("tokens") or []):
            causal = (results.get("model") or {}).get("causal")
            told += ", and how many times that is what they would get if each token saw all "
            told += "that it may see alike; under a mask the first ones get more in any case" if causal else "alike"
        section.text(f"{told}:")
        rows = [(row.get("layer"), _seen(row.get("tokens") or [])) for row in seen]
        section.table(("layer", "most seen tokens"), rows)
    attention = results.get("attention") or {}
    names = {"entropy": "entropy", "attention_rank": "rank", "leaders": "leaders", "energy": "energy"}
    tables = {word: attention.get(key) for key, word in names.items()}
    _add_by_head(section, tables, "")


def _seen(tokens: Sequence[Sequence[Any]]) -> Markup:
    parts = []
    for label, share, *relative in tokens:
        times = f" ({relative[0]:.2g} ×)" if relative and relative[0] is not None else ""
        words = html.escape(f"{100 * share:.2g} %{times}")
        parts.append(f'{code_text(short(str(label)))} <span class="share">{words}</span>')
    return Markup(" ".join(parts))


def add_fates(section: Section, results: Results, figures: Figures) -> None:
    """What becomes of a Gaussian under each layer, for ever."""
    fates = results["fates"]
    pre = bool((results.get("model") or {}).get("pre"))
    unit = (
        "The flow is in the frame of the normalised tokens, while the layer adds its output to the stream: its time is "
        "not in layers."
        if pre
        else "A time of 1 is one layer."
    )
    words = Block()
    words.text(
        "Take the attention of one layer, freeze its weights, and let a Gaussian with the mean and covariance of what "
        f"the layer sees flow by it. {unit} Normalisations and perceptrons are not in it: it tells which way attention "
        "alone pushes."
    )
    keys = [key for key in ("ending", "time", "bound", "growth", "rank") if any(f.get(key) is not None for f in fates)]
    rows = [(f.get("layer"), *(_word(f.get(key)) for key in keys)) for f in fates]
    words.table(("layer", *(_FATES[key] for key in keys)), rows)
    words.text(
        "Before the bound there is no blow-up, whatever the directions of the matrices, and often long after it; the "
        f"growth is that of the trace of the covariance at the start, per {'unit of time' if pre else 'layer'}; the "
        "rank is how many directions are left at the end."
    )
    section.beside(words, [figures["fates"]()] if "fates" in figures else [])
    told = [(f.get("layer"), plain_text(f["words"])) for f in fates if f.get("words")]
    if told:
        section.details("In words").table(("layer", ""), told)


_FATES = {"ending": "", "time": "blow-up at", "bound": "bound", "growth": "growth", "rank": "effective rank"}


def add_deep(section: Section, results: Results, figures: Figures) -> None:
    """The depth beyond that of the model."""
    tied = (results.get("model") or {}).get("tied")
    section.text(
        "All layers have the same weights, so that the model has any depth: the same map again and again."
        if tied
        else "The model repeated: after its last layer its first one follows. No one trained it for that."
    )
    words = str((results.get("deep") or {}).get("words") or "")
    section.text(plain_text(words[:1].upper() + words[1:] + "." * bool(words)))
    _add_figures(section, figures, [name for name in figures if name.startswith("deep-")])


def _add_by_head(block: Block, tables: Mapping[str, Any], words: str) -> None:
    """Tables of layers and heads, folded into one with a row per head, and words below."""
    tables = {name: table for name, table in tables.items() if any(x is not None for row in table or [] for x in row)}
    if not tables:
        return
    heads = [(layer, head) for layer, row in enumerate(next(iter(tables.values()))) for head in range(len(row))]
    rows = [(layer, head, *(table[layer][head] for table in tables.values())) for layer, head in heads]
    inner = block.details("Head by head")
    _add_sortable(inner, ("layer", "head", *tables), rows)
    inner.text(words)


def _add_sortable(block: Block, headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    block.add('<div class="sortable">')
    block.table(headings, rows)
    block.add("</div>")


def _add_figures(section: Section, figures: Figures, names: Sequence[str]) -> None:
    found = [figures[name](whole=name == "ov") for name in names if name in figures]
    if found:
        section.figures(found)


def code_text(text: Any) -> Markup | None:
    """A name that someone else gave, as it is."""
    return None if text is None else Markup(f'<span class="token">{html.escape(shown(text))}</span>')


def _word(value: Any) -> Any:
    return plain_text(value).replace("_", " ").lower() if isinstance(value, str) else value
