"""The report of a run folder: what was run, what was found, whether the theory holds, and how to do it again."""

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..experiments.contents import read
from ..experiments.names import NUMBERS
from ..store.folder import RunFolder
from . import references, words
from .page import Block, Page, Section, number_text, plain_text, verdict
from .pictures import Pictures

# What a reader looks at first, if it is there.
TILES = (
    "fate",
    "fate_time",
    "rank",
    "clusters",
    "radius",
    "bound",
    "effective_rank",
    "trace",
    "growth",
    "average_cosine",
    "mass_lost",
    "time",
    "steps",
    "seconds",
)
FILM = "animation"
# Pictures that need the whole width of the page.
WIDE = ("panels", "claims", "attention")
# What the table of all cases shows; the rest of their numbers is folded away.
COLUMNS = ("radius", "bound", "clusters", "fate", "rank", "effective_rank", "steps", "seconds", "outcome")
# More cases than this have no section each: the table tells all.
MOST_SECTIONS = 40


def write_report(folder: str | Path) -> Path:
    """Write `report.html` into a run folder, from its JSON files and figures. An unfinished run has a report too.

    **Returns:** the path of the report.
    """
    folder = Path(folder)
    return write(folder / "report.html", lambda _: run_page(folder, *read(folder)))


def write(path: Path, made: Callable[[RunFolder], Page]) -> Path:
    """Write a page, made from what is in a folder, into that very folder; whoever reads the old one meanwhile reads it
    whole.
    """
    with RunFolder(path.parent).watched() as folder:
        folder.put_beside(path.name, made(folder).html().encode())
    return path


def run_page(folder: Path, record: Mapping[str, Any], results: Mapping[str, Any] | None) -> Page:
    """The page of a run, of several cases, or of a sweep."""
    experiment = record.get("experiment") or {}
    title = record.get("title") or record.get("name") or folder.name
    page = Page(title, _subtitle(results), f"meanformer · {record.get('name', 'run')}", _foot(record))
    figures = (results or {}).get("figures") or []
    theory = [one for one in figures if one.get("name") == "claims"]
    films = _films(folder, results) if record.get("kind") == "cases" else []
    shown, pictures = [one for one in figures if one.get("name") != "claims"] + films, Pictures(folder)
    _add_summary(page.section("Result"), folder, record, results)
    if shown:
        _add_figures(page.section("Pictures"), pictures, shown)
    if experiment:
        _add_setting(page.section("What was run"), record, experiment)
    if results and results.get("checks"):
        section = page.section("The theory")
        add_checks(section, results["checks"])
        _add_figures(section, pictures, theory)
    if record.get("kind") == "cases":
        _add_cases(page.section("The cases"), folder, pictures, results)
    if results and results.get("numbers"):
        _add_numbers(page.section("All numbers"), results["numbers"])
    _add_settings(page.section("Settings"), record)
    _add_reproduce(page.section("Do it again"), folder, record)
    _add_citations(page.section("Cite"), record, results)
    return page


def _add_summary(section: Section, folder: Path, record: Mapping[str, Any], results: Mapping[str, Any] | None) -> None:
    section.text(*str(record.get("about") or "").split("\n\n"))
    if results is None:
        done, place = _segments(folder), plain_text(shlex.quote(str(folder)))
        section.note(
            f"This run is not finished{done}. What is complete is safe in the folder; "
            f"`meanformer resume {place}` goes on where it stopped, and `meanformer report {place}` writes this page "
            "again.",
            "warn",
        )
        return
    outcome = str(results.get("outcome") or "")
    fine = outcome.split(" ")[0] in ("REACHED", "STOPPED", "FATE_KNOWN")
    if outcome and record.get("kind") != "sweep":  # a sweep has an outcome for each of its runs
        section.note(f"Outcome: {outcome}", "good" if fine else "warn")
    if results.get("fate"):
        section.note(f"Fate: {results['fate']}", "warn" if str(results["fate"]).startswith("UNDECIDED") else "good")
    numbers = results.get("numbers") or {}
    tiles = [(_label(name), _value(numbers[name]), "") for name in TILES if numbers.get(name) is not None]
    if record.get("kind") == "cases":
        tiles.insert(0, ("cases", len(results.get("rows") or []), ""))
    if record.get("kind") == "sweep":
        tiles.insert(0, ("runs", _sweep_size((record.get("experiment") or {}).get("sweep") or {}), ""))
    bounded = _bounded(results.get("checks"))
    if bounded:
        good = sum(bool(check["holds"]) for check in bounded)
        tiles.insert(0, ("claims that hold", f"{good} of {len(bounded)}", ""))
    if "seconds" not in numbers and results.get("seconds") is not None:
        tiles.append((_label("seconds"), float(results["seconds"]), ""))
    if tiles:
        section.tiles(tiles)


def _add_setting(section: Section, record: Mapping[str, Any], experiment: Mapping[str, Any]) -> None:
    section.text("The state is a measure $\\mu_t$. Attention turns it into a velocity, which moves it:")
    section.display(r"\partial_t\mu_t+\mathrm{div}(\mu_t\,\Gamma_{\mu_t})=0,\qquad\dot{x}=\Gamma_{\mu_t}(x).")
    if record.get("kind") == "cases":
        section.text("The cases below differ in their attention, measure or horizon; what they share is this.")
    if experiment.get("attention"):
        words.describe_attention(section, experiment["attention"])
    if experiment.get("measure"):
        section.text(words.measure_words(experiment["measure"]))
    section.text(" ".join(words.flow_words(experiment)))
    if experiment.get("sweep"):
        _add_sweep(section, experiment["sweep"])


def _add_sweep(section: Section, sweep: Mapping[str, Any]) -> None:
    """The axes of a sweep, and how many runs it has."""
    rows: list[tuple[str, Any, str]] = [
        (f"`{key}`", *_axis(values)) for key, values in (sweep.get("grid") or {}).items()
    ]
    if sweep.get("draws"):
        rows.append(("`draw`", int(sweep["draws"]), "seeds, one after the other"))
    section.text(f"A sweep of {number_text(_sweep_size(sweep))} runs over:")
    section.table(("axis", "values", "from, to"), rows)


def _sweep_size(sweep: Mapping[str, Any]) -> int:
    """How many runs a sweep has."""
    return math.prod([_axis(values)[0] for values in (sweep.get("grid") or {}).values()]) * int(sweep.get("draws") or 1)


def _axis(values: Any) -> tuple[int, str]:
    """How many values an axis has, and which."""
    if isinstance(values, Mapping):
        for law in ("linear", "log"):
            if values.get(law):
                low, high, count = values[law]
                return int(count), f"{number_text(low)} to {number_text(high)}, {law} spacing"
        if values.get("range"):
            low, high = values["range"]
            return int(high) - int(low) + 1, f"{low} to {high}"
        return 1, str(values)
    listed = [v if isinstance(v, str) else number_text(v) if isinstance(v, int | float) else "…" for v in values]
    return len(listed), ", ".join(listed) if len(listed) <= 8 else f"{listed[0]}, {listed[1]}, …, {listed[-1]}"


def _add_figures(section: Section, pictures: Pictures, figures: list[dict[str, Any]]) -> None:
    if not figures:
        return
    section.figures(
        pictures.figure(one["file"], one.get("caption") or "", (one.get("name") or "").split("-")[0] in WIDE)
        for one in figures
    )


def add_checks(section: Block, checks: list[dict[str, Any]]) -> None:
    """The claims of the theory about a run, with verdicts."""
    bounded = _bounded(checks)
    broken = [check for check in bounded if not check["holds"]]
    if broken:
        section.note(f"{len(broken)} of {len(bounded)} bounds of the theory are violated: see the table.", "bad")
    elif bounded:
        section.text("Each claim is an inequality: measured $\\leq$ bound. The slack is one minus their ratio.")
    rows = []
    for check in checks:
        slack, claimed = check.get("slack"), check in bounded
        word = "no claim" if not claimed else "holds" if check["holds"] else "fails"
        percent = f"{100 * slack:.3g} %" if claimed and slack is not None else ""
        measured, bound = check.get("measured"), check.get("bound")
        rows.append((check.get("claim", ""), measured, bound, percent, verdict(word), check.get("why") or ""))
    section.table(("claim", "measured", "bound", "slack", "verdict", "remark"), rows)


def _bounded(checks: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The claims that have a finite bound: of the others there is nothing to hold."""
    return [check for check in checks or [] if check.get("holds") is not None and check.get("bound") is not None]


def _add_cases(section: Section, folder: Path, pictures: Pictures, results: Mapping[str, Any] | None) -> None:
    """A table of all cases, and a short section each."""
    rows = (results or {}).get("rows") or []
    if rows:
        _add_rows(section, rows, list(COLUMNS))
        _add_rows(section.details("All numbers of all cases"), rows, list(NUMBERS))
    for inner in _case_folders(folder, results):
        record, outcome = read(inner)
        part = section.section(record.get("title") or inner.name)
        _add_case(
            part, pictures, record, outcome, [_of_case(inner, one) for one in (outcome or {}).get("figures") or []]
        )


def _case_folders(folder: Path, results: Mapping[str, Any] | None) -> list[Path]:
    """The folders of the cases that have a section, in the order of the experiment."""
    cases = folder / "cases"
    listed = [row["name"] for row in (results or {}).get("rows") or []]
    listed += sorted(path.name for path in cases.glob("[!.]*/") if path.name not in listed)
    found = [cases / name for name in listed[:MOST_SECTIONS]]
    # A case is in the folder of all: links lead elsewhere.
    return [path for path in found if (path / "run.json").is_file() and path.resolve().parent == cases.resolve()]


def _of_case(inner: Path, one: Mapping[str, Any]) -> dict[str, Any]:
    """A figure of a case, seen from the folder of all."""
    return {**one, "file": f"cases/{inner.name}/{one['file']}"}


def _films(folder: Path, results: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The films of the cases, as figures of the whole."""
    films = []
    for inner in _case_folders(folder, results):
        record, found = read(inner)
        for one in (found or {}).get("figures") or []:
            if one.get("name") == FILM:
                caption = f"{record.get('title') or inner.name}: {one.get('caption') or 'a film'}"
                films.append(_of_case(inner, one) | {"caption": caption})
    return films


def _add_rows(block: Block, rows: list[dict[str, Any]], names: list[str]) -> None:
    """Those of the numbers that one of the cases has, a row for each case."""
    found = [row.get("numbers") or {} for row in rows]
    names = [name for name in names if any(numbers.get(name) is not None for numbers in found)]
    cells = [
        [row.get("title") or row["name"], *(_value(numbers.get(name)) for name in names)]
        for row, numbers in zip(rows, found, strict=True)
    ]
    block.table(("case", *(_label(name) for name in names)), cells)


def _add_case(
    section: Section,
    pictures: Pictures,
    record: Mapping[str, Any],
    results: Mapping[str, Any] | None,
    drawn: list[dict[str, Any]],
) -> None:
    """One case in short: its words beside its picture, if it has one."""
    text, experiment = Block(), record.get("experiment") or {}
    text.text(str(record.get("about") or ""))
    if experiment.get("attention"):
        words.describe_attention(text, experiment["attention"])
    text.text(" ".join(words.flow_words(experiment)))
    if results is None:
        text.note("Not finished.", "warn")
    else:
        text.text(f"Outcome: {results['outcome']}." if results.get("outcome") else "")
        text.text(f"Fate: {results['fate']}." if results.get("fate") else "")
        checks = results.get("checks") or []
        bounded = _bounded(checks)
        broken = [check for check in bounded if not check["holds"]]
        if bounded:
            text.badges([verdict("fails" if broken else "holds")])
            add_checks(text.details(f"{len(bounded)} bounds of the theory, {len(broken)} violated"), checks)
    # The film of a case is among the pictures of all.
    figures = [one for one in drawn if one.get("name") != FILM]
    section.beside(text, [pictures.figure(one["file"], one.get("caption") or "") for one in figures[:1]])
    _add_figures(section, pictures, figures[1:])


def _add_numbers(section: Section, numbers: Mapping[str, Any]) -> None:
    rows = [(f"`{name}`", value, NUMBERS.get(name, "")) for name, value in numbers.items()]
    section.table(("name", "value", "what it is"), rows)


def _add_settings(section: Section, record: Mapping[str, Any]) -> None:
    if record.get("convention"):
        section.text(f"Convention: {record['convention']}.")
    if record.get("source"):
        section.details("The experiment file", open_=len(record["source"]) < 1500).code(record["source"])
    if record.get("experiment"):
        shown = json.dumps(record["experiment"], indent=2, ensure_ascii=False)
        section.details("All settings, defaults filled in").code(shown)


def _add_reproduce(section: Section, folder: Path, record: Mapping[str, Any]) -> None:
    versions = record.get("versions") or {}
    if record.get("command") or record.get("experiment"):
        command = record.get("command") or f"meanformer run {record.get('name', '')}"
        section.text("With the versions below:")
        section.code(command)
    else:
        section.text("This run was started from Python; `run.json` in its folder has the call.")
    section.text("Load it in Python:")
    section.code("import meanformer as mf\n\n" + _loading(folder, str(record.get("kind"))))
    rows = [("seed", record.get("seed")), ("created", record.get("created")), ("commit", record.get("commit"))]
    rows += [("machine", record.get("machine")), ("hash of the settings", record.get("hash"))]
    rows += [(name, version) for name, version in versions.items()]
    section.table(("", ""), [(name, str(value)) for name, value in rows if value is not None])


def _loading(folder: Path, kind: str) -> str:
    path = folder.as_posix()
    if kind == "sweep":
        return f"table = mf.load_table({json.dumps(path)})  # an xarray.Dataset"
    if kind == "cases":
        return f"run = mf.load({json.dumps(f'{path}/cases/NAME')})"
    return f"run = mf.load({json.dumps(path)})"


def _add_citations(section: Section, record: Mapping[str, Any], results: Mapping[str, Any] | None) -> None:
    claims = [str(check.get("claim")) for check in (results or {}).get("checks") or []]
    keys = references.cite({**record, "claims": claims})
    version = str((record.get("versions") or {}).get("meanformer") or "")
    section.text("What this run used:")
    section.code("\n\n".join(references.bibtex(key, version) for key in keys if key in references.BIBTEX))
    unknown = [key for key in keys if key not in references.BIBTEX]
    if unknown:
        section.text("Also cited by the experiment: " + ", ".join(f"`{key}`" for key in unknown) + ".")


def _subtitle(results: Mapping[str, Any] | None) -> str:
    """The run in a line: its summary up to how it ended, which is told below."""
    words = str((results or {}).get("summary") or "").split(": ")[0]
    return re.sub(r"\bR\^(\d+)", r"$\\mathbb{R}^{\1}$", words)


def _label(name: str) -> str:
    labels = {"fate_time": "time of the fate", "time": "time reached"}
    return labels.get(name, name.replace("_", " "))


def _value(value: Any) -> Any:
    """A word such as STEP_TOO_SMALL as people write it; numbers stay."""
    return value.replace("_", " ").lower() if isinstance(value, str) and value.isupper() else value


def _segments(folder: Path) -> str:
    return f" ({len(RunFolder(folder).manifest)} segments are complete)"


def _foot(record: Mapping[str, Any]) -> str:
    version = (record.get("versions") or {}).get("meanformer", "")
    return f"Written by meanformer {version}; computed {record.get('created') or 'at an unknown time'}."
