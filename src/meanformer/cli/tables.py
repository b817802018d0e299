"""What the commands print: tables for people. Numbers are short here; `--json` has all digits."""

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .._words import one_line, printable

VERDICTS = {"holds": "green", "fails": "bold red", "undecided": "yellow", "misleads": "magenta"}
# The numbers that a table of several runs shows, as far as they are there.
COLUMNS = ("radius", "bound", "clusters", "effective_rank", "rank", "steps", "seconds")
# What the closure of a model is compared with, in few words.
CLOSURES = {"random": "random weights", "matched": "random, same logits", "resampled": "Gaussian tokens"}


def _console() -> Any:
    from rich.console import Console

    # A pipe has no width: print tables whole.
    return Console() if sys.stdout.isatty() else Console(width=120)


def _table(title: str, headings: Sequence[tuple[str, bool]], rows: Sequence[Sequence[Any]]) -> Any:
    """A table; each heading says whether its column has numbers."""
    from rich.table import Table
    from rich.text import Text

    # Words of users are words, not markup, and nothing that a terminal obeys.
    table = Table(title=Text(printable(title)) if title else None, title_justify="left", title_style="bold")
    for heading, numeric in headings:
        table.add_column(Text(printable(heading)), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(text(cell)), style=VERDICTS.get(str(cell), "")) for cell in row))
    return table


def _say(console: Any, words: str, style: str = "") -> None:
    """A line, as it is."""
    console.print(one_line(words), style=style or None, markup=False, highlight=False, soft_wrap=True)


def text(value: Any) -> str:
    """A value, short."""
    if value is None or value == "":
        return "—"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def print_run(found: Mapping[str, Any], already: bool = False) -> None:
    """One run folder, of any kind; `already`: it was done before this command."""
    console = _console()
    _say(console, found["title"], "bold")
    if found.get("summary"):
        _say(console, found["summary"])
    if found.get("rows"):
        _print_cases(console, found["rows"])
    elif found["kind"] == "model" and found["status"] == "done":
        _print_model(console, found)
    elif found.get("items"):
        _print_items(console, found["items"])
    elif found.get("numbers"):
        console.print(_table("", [("number", False), ("value", True)], list(found["numbers"].items())))
    claims = [claim for claim in found.get("checks") or () if claim["holds"] is not None]
    if claims:
        good = sum(claim["holds"] for claim in claims)
        _say(console, f"Checks of the theory: {good} of {len(claims)} hold.")
        for claim in claims:
            if not claim["holds"]:
                words = f"  FAILS: {claim['claim']}: {text(claim['measured'])} above {text(claim['bound'])}"
                _say(console, words, "bold red")
    for note in found.get("notes") or ():
        _say(console, f"Note: {note}", "yellow")
    for failed in found.get("failed") or ():
        first, *more = failed["error"].splitlines() or [""]
        _say(console, f"Task {failed['task']} failed: {first}")
        for line in more:
            _say(console, f"  {line.strip()}")
    if found["status"] != "done":
        _say(console, f"Not finished: {found['progress']}. Go on:  meanformer resume {shlex.quote(found['folder'])}")
    elif found.get("seconds") is None:
        _say(console, f"Finished. Numbers, figures and a report:  meanformer report {shlex.quote(found['folder'])}")
    else:
        report = f" Report: {found['report']}" if found["report"] else ""
        before = "Already done, in" if already else "Done in"
        what = " of computing" * (found["kind"] == "reproduction")
        _say(console, f"{before} {text(found['seconds'])} s{what}.{report}")


def _print_cases(console: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    shown = [name for name in COLUMNS if any((row.get("numbers") or {}).get(name) is not None for row in rows)]
    headings = [("case", False), *((name.replace("_", " "), True) for name in shown), ("outcome", False)]
    body = []
    for row in rows:
        numbers = row.get("numbers") or {}
        body.append([row["name"], *(numbers.get(name) for name in shown), _short_outcome(row)])
    console.print(_table("", headings, body))


def _short_outcome(row: Mapping[str, Any]) -> str:
    words = {"REACHED": "reached", "STOPPED": "stopped at"}
    words |= dict.fromkeys(("STEP_TOO_SMALL", "NOT_FINITE"), "blew up near")
    kind, time = str(row.get("outcome") or "").split(" ")[0], (row.get("numbers") or {}).get("time")
    if row.get("fate"):
        return str(row["fate"]).split(";")[0]
    return f"{words.get(kind, kind)} t = {text(time)}"


def _print_items(console: Any, items: Sequence[Mapping[str, Any]]) -> None:
    names = ("claim", "reference", "ours", "tolerance", "verdict")
    headings = [(name, name in names[1:4]) for name in names]
    for item in items:
        rows = [[_words(row[name]) for name in names] for row in item["rows"]]
        console.print(_table(f"{item['id']}  {item['title']}  ({item['seconds']:.0f} s)", headings, rows))


def _print_model(console: Any, found: Mapping[str, Any]) -> None:
    """A model: the stream of its tokens at each depth, and, in a table of its own, what each layer is."""
    curves = {name: (found.get("curves") or {}).get(name) for name in ("average_cosine", "effective_rank")}
    curves = {name.replace("_", " "): values for name, values in curves.items() if values}
    if curves:
        rows = [[depth, *values] for depth, values in enumerate(zip(*curves.values(), strict=True))]
        console.print(_table("", [("layers passed", True), *((name, True) for name in curves)], rows))
    closure = found.get("closure") or {}
    columns: dict[str, Any] = {"closure / mean value": (closure.get("layer_error"), closure.get("layer_mean_only"))}
    for null, name in CLOSURES.items():
        columns[name] = [(closure.get(key) or {}).get("middle") for key in (null, f"{null}_mean_only")]
    pairs = {name: [_pair(*pair) for pair in zip(*both, strict=True)] for name, both in columns.items() if all(both)}
    fates = [_short_fate(fate) for fate in found.get("fates") or ()]
    if pairs or fates:
        shown = pairs | ({"frozen flow": fates} if fates else {})
        rows = [[layer, *values] for layer, values in enumerate(zip(*shown.values(), strict=True))]
        title = "Relative errors of the Gaussian closure / of the mean value alone, all heads together" if pairs else ""
        console.print(_table(title, [("layer", True), *((name, name in pairs) for name in shown)], rows))


def _pair(error: float | None, mean_only: float | None) -> str:
    return " / ".join("—" if value is None else f"{value:.3g}" for value in (error, mean_only))


def _short_fate(fate: Mapping[str, Any]) -> str:
    return fate["ending"] if fate.get("time") is None else f"{fate['ending']} at t = {fate['time']:.3g}"


def _words(value: Any) -> Any:
    """Words with their formulas as a terminal can show them."""
    from meanformer.report.formula import plain

    return re.sub(r"\$([^$]+)\$", lambda found: plain(found[1]), value) if isinstance(value, str) else value


def print_library(experiments: Sequence[Mapping[str, Any]], papers: Sequence[Sequence[str]]) -> None:
    """The library."""
    console = _console()
    headings = [("experiment", False), ("what it shows", False), ("cost", False)]
    console.print(_table("", headings, [[e["name"], e["line"], e["cost"]] for e in experiments]))
    console.print(_table("", [("paper", False), ("title", False), ("cost", False)], papers))
    print("Run one:  meanformer run NAME        Reproduce a paper:  meanformer reproduce PAPER --quick")


def print_comparison(found: Mapping[str, Any]) -> None:
    """Several runs side by side."""
    console = _console()
    headings = [("setting", False), *((name, True) for name in found["runs"])]
    for title, part in (("Settings that differ", "settings"), ("Numbers", "numbers")):
        rows = [[name, *values] for name, values in found[part].items()]
        console.print(_table(title, [(part[:-1], False), *headings[1:]], rows) if rows else f"{title}: none")


def print_speeds(found: Sequence[Mapping[str, Any]]) -> None:
    """Measured speeds."""
    headings = [("what", False), ("seconds", True), ("speed", False)]
    _console().print(_table("", headings, [[row["what"], row["seconds"], row["speed"]] for row in found]))
