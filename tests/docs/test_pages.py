"""Every block of code of the README and the docs runs, and prints what the page says that it prints."""

import contextlib
import gc
import io
import re
import runpy
import shlex
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
import typer

from docs.pages import DOCS, PAGES, ROOT, Fence, fences, name_of
from meanformer import cli
from meanformer.cli import commands
from meanformer.experiments.build import check
from meanformer.experiments.config import experiment_of, read_experiment
from meanformer.experiments.reproductions import PAPERS
from oracles.worked import TABLE

LANGUAGES = {"python", "bash", "console", "toml", "text", "bibtex"}
RUN = {"python", "bash"}


def blocks(page) -> list[tuple[Fence, str | None]]:
    """The blocks that are run, each with the text block that follows it at once, if any."""
    found = fences(page)
    following = [*found, Fence("", "", 0)][1:]
    return [
        (fence, after.body if after.language == "text" and after.follows else None)
        for fence, after in zip(found, following, strict=True)
        if fence.language in RUN
    ]


def shell(line: str, monkeypatch) -> None:
    """One line of a shell block: a command of ours, in this process, which has compiled much of it already."""
    command, *arguments = shlex.split(line, comments=True)
    try:
        if command == "meanformer":
            monkeypatch.setattr(sys, "argv", [command, *arguments])
            cli.main()
        else:
            assert command == "python", f"only `meanformer` and `python examples/...` are run: {line}"
            monkeypatch.setattr(sys, "argv", arguments)
            runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
    except SystemExit as stop:
        assert not stop.code, line


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name_of)
def test_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for fence, text in blocks(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if fence.language == "python":
                # Blank lines put the numbers of the page into a traceback.
                exec(compile("\n" * fence.line + fence.body, str(page), "exec"), names)
            else:
                for line in fence.body.splitlines():
                    shell(line, monkeypatch)
        if text is not None:
            assert printed.getvalue() == text
    plt.close("all")
    names.clear()
    gc.collect()  # a file that the page leaves open is told here, and not in another test


# Plain text that no block before it prints: a diagram, pseudo-code, a refusal (it is compared in tests/experiments).
PLAIN = {"docs/architecture.md": 1, "docs/math.md": 1, "docs/experiments.md": 1}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_output_follows_what_prints_it(page):
    """Else it would be compared with nothing."""
    found = fences(page)
    before = [Fence("", "", 0), *found]
    loose = [
        fence
        for fence, printer in zip(found, before, strict=False)
        if fence.language == "text" and not (fence.follows and printer.language in RUN)
    ]
    assert len(loose) == PLAIN.get(name_of(page), 0), [fence.line for fence in loose]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_fence_says_what_it_is(page):
    """Nothing is left out by a fence without a language, and what is only shown could be run."""
    for fence in fences(page):
        assert fence.language in LANGUAGES, f"{name_of(page)}, line {fence.line}"
        if fence.language == "console":
            for line in fence.body.splitlines():
                could_run(line)
        elif fence.language == "toml":
            check(experiment_of(fence.body, f"{name_of(page)}, line {fence.line}", ROOT))


# Programs that are not ours.
TOOLS = {"cd", "git", "pip", "pre-commit", "source"}


def could_run(line: str) -> None:
    """A command that is shown: its target, script or options exist."""
    words = shlex.split(line, comments=True)
    while words and re.match(r"[A-Z0-9_]+=", words[0]):  # the environment of the command
        words = words[1:]
    if not words:  # a comment
        return
    command, *arguments = words
    command = command.removeprefix(".venv/bin/").replace("python3", "python")
    if command == "make":
        targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        assert arguments and {word for word in arguments if "=" not in word} <= targets, line
    elif command == "meanformer":
        parses(arguments, line)
    elif command == "python" and arguments[0] == "-m":
        module = ROOT / arguments[1].replace(".", "/")
        assert arguments[1] in {"venv", "pytest"} or module.is_dir() or module.with_suffix(".py").is_file(), line
    elif command == "python" and arguments[0] != "-c":
        assert (ROOT / arguments[0]).is_file(), line
    else:
        assert command in {*TOOLS, "python"}, line


def parses(arguments: list[str], line: str) -> None:
    """Whether the command line reads its words; nothing is run."""
    app = typer.main.get_command(commands.app)
    name, context, rest = app.resolve_command(app.make_context("meanformer", [], resilient_parsing=True), arguments)
    try:
        read = context.make_context("meanformer", rest).params
    except typer.Exit:  # --help
        return
    except Exception as error:
        raise AssertionError(f"{line}: {error}") from error
    if name == "run" and not str(read["experiment"]).endswith(".toml"):  # those are written by the reader
        changes = read["changes"] or []
        experiment = read_experiment(read["experiment"], list(changes))
        if changes:  # the experiments as they are have tests of their own
            check(experiment)
    if name == "reproduce":
        assert read["paper"] in PAPERS, line


# The kinds as the page names them, in the order of the table that was worked by hand.
NAMES = ("softmax", "L2", "sigmoid", "linear", "unnormalised", "Sinkhorn, dot", "Sinkhorn, distance", "hardmax")
WORKED = dict(zip(NAMES, TABLE.values(), strict=True))


def test_the_table_of_the_first_page_is_the_one_worked_by_hand():
    (table,) = (text for _, text in blocks(DOCS / "start.md") if text and text.startswith("kind "))
    rows = {line[:20].strip(): np.array(line[20:].split(), float) for line in table.splitlines()[1:]}
    assert rows.keys() == WORKED.keys()
    for name, values in WORKED.items():
        np.testing.assert_allclose(rows[name], values, rtol=0, atol=0.51e-8, err_msg=name)


def test_the_hand_calculation_of_the_first_page():
    """Its numbers, from the definition, without the library."""
    x, w, A, V = np.array([1.0, -0.5, 2.0]), np.array([0.2, 0.5, 0.3]), 0.8 * 1.1, 0.9
    mass = w * np.exp(A * x[0] * x)
    share = mass / mass.sum()
    page = (DOCS / "start.md").read_text(encoding="utf-8")
    for value in (*mass, mass.sum(), *share, *(share * x), (share * x).sum(), V * (share * x).sum()):
        assert f"{value:.5f}" in page


def test_readme_has_its_picture_and_two_set_up_commands():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    picture = DOCS / "img" / "tour.png"
    assert f"({picture.relative_to(ROOT)})" in readme
    assert 50_000 < picture.stat().st_size < 600_000
    assert re.findall(r"^make (\w+)", readme, re.MULTILINE) == ["demo", "test"]
    for link in re.findall(r"\]\(([^)#]+)\)", readme):
        assert link.startswith("https://") or (ROOT / link).exists(), link


RESULTS, FATES = ((ROOT / "benchmarks" / name).read_text(encoding="utf-8") for name in ("RESULTS.md", "FATES.md"))
# Row of the table in the README -> where its number stands in what was measured.
COMPARED = {
    "torch SDPA | 2.05": (RESULTS, "| exact, float64, k = d = 2: torch SDPA / ours | 2.05 |"),
    "KeOps | 6.12": (RESULTS, r"re:\| float64 \| 2 \| KeOps \|.*\| 6\.12 \("),
    "NumPy | 5.48": (RESULTS, r"re:\| float64 \| 2 \| NumPy \|.*\| 5\.48 \("),
    "torch SDPA | 0.891 (slower)": (RESULTS, "| exact, float32, k = d = 64: torch SDPA / ours | 0.891 |"),
    "our exact sums, extrapolated | 1520": (RESULTS, "k = d = 2, n = 1e6: exact / fast, an evaluation | 1.52e+03 |"),
    " | 144": (RESULTS, "| fast, k = d = 2, n = 1e6: exact / fast, planning and checking at each call | 144 |"),
    "LSODA | 0.81 (slower)": (FATES, "LSODA / ours 0.81"),
    "LSODA, scaled from a part | 1.97": (FATES, "Ratio LSODA / ours 1.97"),
}


def test_the_readme_compares_by_what_was_measured():
    """Each number of its table, and those of the sentence below it."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme[readme.index("| | against |") : readme.index("A flow of a million tokens")]
    rows = [row for row in table.splitlines()[2:] if row]
    assert len(rows) == len(COMPARED)
    for row, (end, (source, words)) in zip(rows, COMPARED.items(), strict=True):
        assert row.rstrip("| ").endswith(end), row
        assert re.search(words[3:], source) if words.startswith("re:") else words in source, words
    assert "9.48 s (20.3 s the first time, with compiling) and 1.19 GB" in readme
    assert "| flow of 1e6 tokens: wall time | 9.48 s" in RESULTS and "first run 20.3 s" in RESULTS
    assert "| flow of 1e6 tokens: peak memory | 1.19 GB" in RESULTS


def test_the_readme_counts_the_claims_of_the_papers():
    pages = [DOCS / "reproductions" / f"{paper}.md" for paper in PAPERS]
    counts = [int(re.search(r"(\d+)\s+claims in", page.read_text(encoding="utf-8"))[1]) for page in pages]
    assert f"{sum(counts)} claims of two papers" in (ROOT / "README.md").read_text(encoding="utf-8")
