"""The parts of a model's report: its curves, the closure, heads, attention, frozen layers, and the depth beyond."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..plots.tokenmap import shown
from .page import Block, Markup, Section, number_text
from .sentences import about_depth, plain_text
from .tokenmap import short

Results = Mapping[str, Any]
Figures = Mapping[str, tuple[Path, str]]

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
    _add_figures(section, figures, ["closure-layers", "closure-heads"])
    rows = []
    for layer, error in enumerate(closure["layer_error"]):
        errors, means = closure["error"][layer], closure["mean_only"][layer]
        helped = sum(e is not None and m is not None and e < m for e, m in zip(errors, means, strict=True))
        nulls = (_band(closure.get(null), layer) for null in ("random", "resampled"))
        rows.append((layer, error, closure["layer_mean_only"][layer], *nulls, f"{helped} of {len(errors)}"))
    section.table(
        ("layer", "closure", "mean value", "random weights", "Gaussian tokens", "heads where it beats the mean"),
        rows,
        "Relative errors of whole layers; nulls as median (5 to 95 %).",
    )
    keys = ("error", "mean_only", "random_heads", "resampled_heads", "logit_size")
    tables = [(closure.get(key) or {}).get("middle") if key.endswith("_heads") else closure.get(key) for key in keys]
    names = ("closure", "mean value", "random weights", "Gaussian tokens", "size of logits")
    words = (
        r"The size of logits is $\|\Sigma^{1/2}A\,\Sigma^{1/2}\|/\tau$ with $A=K^\top Q$. Sums over $n$ Gaussian "
        r"tokens tend to their limit like $n^{-1/2}$ where it is below $1/\sqrt{2}$; where it is large a few decide."
    )
    _add_by_head(section, dict(zip(names, tables, strict=True)), words)


def _band(band: Mapping[str, Any] | None, layer: int) -> str:
    if not band or not band.get("middle"):
        return "—"
    low, middle, high = (number_text(band[key][layer], 3) for key in ("low", "middle", "high"))
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
    section.beside(words, [figures["symmetry"]] if "symmetry" in figures else [])
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
        section.text("The tokens that are most looked at, with the share of all attention of the layer that they get:")
        rows = [(row.get("layer"), _seen(row.get("tokens") or [])) for row in seen]
        section.table(("layer", "most seen tokens"), rows)
    attention = results.get("attention") or {}
    names = {"entropy": "entropy", "attention_rank": "rank", "leaders": "leaders", "energy": "energy"}
    tables = {word: attention.get(key) for key, word in names.items()}
    _add_by_head(section, tables, "")


def _seen(tokens: Sequence[Sequence[Any]]) -> Markup:
    parts = (
        f'{code_text(short(str(label)))} <span class="share">{html.escape(f"{100 * share:.2g}")} %</span>'
        for label, share in tokens
    )
    return Markup(" ".join(parts))


def add_fates(section: Section, results: Results, figures: Figures) -> None:
    """What becomes of a Gaussian under each layer, for ever."""
    fates = results["fates"]
    words = Block()
    words.text(
        "Take the attention of one layer, freeze its weights, and let a Gaussian with the mean and covariance of what "
        "the layer sees flow by it; a time of 1 is one layer. This is what the theory says of the layer repeated for "
        "ever, without normalisation and perceptron: it tells which way attention alone pushes."
    )
    keys = [key for key in ("ending", "time", "bound", "growth", "rank") if any(f.get(key) is not None for f in fates)]
    rows = [(f.get("layer"), *(_word(f.get(key)) for key in keys)) for f in fates]
    words.table(("layer", *(_FATES[key] for key in keys)), rows)
    words.text(
        "Before the bound there is no blow-up, whatever the directions of the matrices; the growth is that of the "
        "trace of the covariance at the start, per layer; the rank is how many directions are left at the end."
    )
    section.beside(words, [figures["fates"]] if "fates" in figures else [])
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
    found = [(*figures[name], name == "ov") for name in names if name in figures]
    if found:
        section.figures(found)


def code_text(text: Any) -> Markup | None:
    """A name that someone else gave, as it is."""
    return None if text is None else Markup(f'<span class="token">{html.escape(shown(text))}</span>')


def _word(value: Any) -> Any:
    return plain_text(value).replace("_", " ").lower() if isinstance(value, str) else value
