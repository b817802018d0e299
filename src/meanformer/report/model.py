"""The report of a model's analysis: what it does to the tokens, and what the theory makes of it."""

import json
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..plots.models import draw_model
from ..store.folder import RunFolder
from .formula import escape
from .model_parts import (
    COLUMNS,
    Figures,
    Results,
    add_attention,
    add_closure,
    add_deep,
    add_depth,
    add_fates,
    add_heads,
    code_text,
)
from .page import Markup, Page, Section, cell, number_text, own_file, own_script, plain_text
from .pictures import Pictures
from .run import _add_citations, _add_settings, _foot, read, write
from .sentences import about_result, of
from .tokenmap import moving_map

NUMBERS = {
    "average_cosine_first": "average cosine of two tokens before the first layer",
    "average_cosine_last": "the same after the last layer",
    "effective_rank_first": "effective rank of the covariance before the first layer",
    "effective_rank_last": "the same after the last layer",
    "closure_error": "median over heads of the relative error of the Gaussian closure",
    "mean_only_error": "median over heads of the relative error of the mean value alone",
    "closure_beats_mean": "share of the heads in which the closure is better than the mean value",
    "tokens": "number of tokens",
    "layers": "number of layers",
    "heads": "number of heads, all layers together",
    "seconds": "wall time, with compiling",
}


def write_model_report(folder: str | Path) -> Path:
    """Write `report.html` into the run folder of a model's analysis, from its JSON files and figures.

    Figures that the folder has not are drawn. An unfinished analysis has a short report.

    **Returns:** the path of the report.
    """
    return write(Path(folder) / "report.html", lambda found: model_page(found, *read(found.path)))


def model_page(run: RunFolder, record: Mapping[str, Any], results: Results | None) -> Page:
    """The page of a model's analysis. The folder is watched: figures that it has not are drawn there."""
    folder = run.path
    title = plain_text(record.get("title") or record.get("name") or folder.name)
    name = plain_text(record.get("name") or "model")
    page = Page(title, plain_text((results or {}).get("summary") or ""), f"meanformer · model · {name}", _foot(record))
    first = page.section("Result")
    first.add(f"<style>\n{own_file('model.css')}</style>")
    first.text(*str(record.get("about") or "").split("\n\n"))
    if results is None:
        _add_unfinished(first, folder, record)
    else:
        listed = results.get("figures") or draw_model(results, run.put_beside)
        figure = Pictures(folder).figure
        figures = {one.get("name") or "": partial(figure, one["file"], one.get("caption") or "") for one in listed}
        _add_parts(page, first, results, figures)
    _add_settings(page.section("Settings"), record)
    _add_again(page.section("Do it again"), folder, record)
    last = page.section("Cite")
    _add_citations(last, record, results)
    last.add(own_script("sorting.js"))
    return page


def _add_parts(page: Page, first: Section, results: Results, figures: Figures) -> None:
    """All sections of which there are numbers."""
    _add_result(first, results)
    parts = {
        "The tokens, layer by layer": (_add_map, results.get("map")),
        "The model and its input": (_add_model, results.get("model")),
        "Over depth": (add_depth, results.get("curves")),
        "The Gaussian closure": (add_closure, results.get("closure")),
        "Heads": (add_heads, results.get("heads")),
        "Attention": (add_attention, results.get("attention") or results.get("most_seen")),
        "Frozen layers": (add_fates, results.get("fates")),
        "Beyond the model": (add_deep, results.get("deep")),
    }
    for title, (add, there) in parts.items():
        if there:
            add(page.section(title), results, figures)
    numbers = results.get("numbers") or {}
    if numbers:
        rows = [(f"`{name}`", value, NUMBERS.get(name, "")) for name, value in numbers.items()]
        page.section("All numbers").table(("name", "value", "what it is"), rows)


def _add_result(section: Section, results: Results) -> None:
    for note in results.get("notes") or []:
        section.note(plain_text(note), "warn")
    model, given, numbers = (results.get(key) or {} for key in ("model", "input", "numbers"))
    tiles: list[tuple[str, Any, str]] = [("tokens", given.get("n"), str(given.get("kind") or ""))]
    tiles.append(("layers", model.get("depth"), of(model.get("heads"), "heads each")))
    for name in ("average_cosine", "effective_rank"):
        ends = [numbers.get(f"{name}_{end}") for end in ("first", "last")]
        if None not in ends:
            words = " → ".join(number_text(float(end), 3) for end in ends)  # type: ignore[arg-type]
            tiles.append((COLUMNS[name], Markup(escape(words)), "first to last layer"))
    if numbers.get("closure_error") is not None:
        mean = numbers.get("mean_only_error")
        beside = "" if mean is None else f"; {number_text(mean, 3)} for the mean value"
        tiles.append(("closure error", Markup(cell(numbers["closure_error"], 3)), f"median over heads{beside}"))
    if numbers.get("closure_beats_mean") is not None:
        share = f"{100 * numbers['closure_beats_mean']:.0f} %"
        tiles.append(("closure beats the mean", share, "of the heads"))
    if results.get("seconds") is not None:
        memory = f"{results['peak_bytes'] / 2**20:,.0f} MB at most" if results.get("peak_bytes") else ""
        tiles.append(("time", f"{results['seconds']:.3g} s", memory))
    section.tiles(tile for tile in tiles if tile[1] is not None)
    section.text(*about_result(results))


def _add_map(section: Section, results: Results, figures: Figures) -> None:
    own = (results.get("map") or {}).get("deep") and not (results.get("model") or {}).get("tied")
    of_which = (
        "the model's own layers together, and depths beyond are only seen on it" if own else "all of them together"
    )
    section.text(
        "Each dot is a token. The plane is the same for all layers, spanned by the two leading principal components of "
        f"{of_which}; each layer is centred and divided by its root-mean-square radius."
    )
    weights = (results.get("input") or {}).get("weights") or []
    if 0 in weights:
        section.text("Rings are tokens of weight 0: they see the others, and are not seen.")
    moving = moving_map(results)
    if moving is not None:
        section.add(moving)
    if "map" in figures:
        section.details("Layers side by side").add(figures["map"](whole=True))


def _add_model(section: Section, results: Results, figures: Figures) -> None:
    model, given = results.get("model") or {}, results.get("input") or {}
    before = bool(model.get("pre"))
    section.text("A layer moves tokens twice: by attention, which depends on their measure $\\mu$, and one by one.")
    section.display(
        r"x\mapsto x+\Gamma_{N_1\mu}(N_1x),\qquad x\mapsto x+F(N_2x)"
        if before
        else r"x\mapsto N_1\left(x+\Gamma_\mu(x)\right),\qquad x\mapsto N_2\left(x+F(x)\right)"
    )
    left_out = "$F$" if before else "$F$ and the normalisations"
    section.text(
        r"$\Gamma$ is attention with its heads and biases, $F$ the perceptron, $N_1$ and $N_2$ are normalisations. "
        rf"The theory is of $\Gamma${' on normalised tokens' * before}: it leaves out {left_out}."
    )
    rows: list[tuple[str, Any]] = [
        ("model", code_text(model.get("name"))),
        ("architecture", code_text(model.get("kind"))),
    ]
    rows += [("layers", _layers(model)), ("heads", model.get("heads")), ("dimension of tokens", model.get("d"))]
    rows.append(("dimension of keys", model.get("k")))
    rows.append(("a token sees", "those before it, and itself" if model.get("causal") else "all tokens"))
    rows.append(("input", f"{given.get('kind')}" if not given.get("source") else code_text(given["source"])))
    cut = f", cut from {given['cut_from']:,}" if given.get("cut_from") else ""
    grid = f", {given['grid'][0]} × {given['grid'][1]} patches" if given.get("grid") else ""
    rows.append(("tokens", f"{given.get('n')}{cut}{grid}"))
    section.table(("", ""), [(name, number_text(v) if isinstance(v, int) else v) for name, v in rows if v is not None])
    section.text("Layers and heads are counted from 0, as in `record.heads(0)`.")


def _layers(model: Mapping[str, Any]) -> str:
    return f"{model.get('depth')}" + (", all with the same weights: depth is time" if model.get("tied") else "")


def _add_unfinished(section: Section, folder: Path, record: Mapping[str, Any]) -> None:
    done, planned = len(list((folder / "items").glob("[!.]*.json"))), len(record.get("items") or [])
    stages = f" ({done} of {planned} stages are complete)" if planned else ""
    place = plain_text(shlex.quote(str(folder)))
    section.note(
        f"This analysis is not finished{stages}. What is complete is safe in the folder; `meanformer resume {place}` "
        f"goes on where it stopped, and `meanformer report {place}` writes this page again.",
        "warn",
    )


def _add_again(section: Section, folder: Path, record: Mapping[str, Any]) -> None:
    asked = record.get("experiment") or {}
    if record.get("command"):
        section.text("With the versions below:")
        section.code(str(record["command"]))
    if asked.get("model") and record.get("input"):
        section.text("The same tokens in Python:")
        section.code(_loading(folder / str(record["input"]), asked))
    rows = [(key, record.get(key)) for key in ("seed", "created", "commit", "machine")]
    rows += [("hash of the settings", record.get("experiment_hash")), *(record.get("versions") or {}).items()]
    section.table(("", ""), [(name, plain_text(value)) for name, value in rows if value is not None])


def _loading(file: Path, asked: Mapping[str, Any]) -> str:
    """How to make the record again."""
    place, model = json.dumps(file.as_posix()), json.dumps(asked["model"])
    kind = (asked.get("input") or {}).get("kind")
    given = {"image": f"image={place}", "tokens": f"tokens=np.load({place})"}.get(
        str(kind), f"Path({place}).read_text(), cut={bool(asked.get('cut', True))}"
    )
    needed = {"image": "", "tokens": "import numpy as np\n\n"}.get(str(kind), "from pathlib import Path\n\n")
    dtype = json.dumps(asked.get("dtype") or "float32")
    return f"""{needed}import meanformer as mf

model = mf.models.load({model}, dtype={dtype})
record = model.record({given})
mf.average_cosine(record.state(record.depth))"""
