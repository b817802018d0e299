"""The command line. Thin: it reads options, calls an experiment, and prints what it found.

Exit codes: 0 done, 1 failed, 2 refused input, 130 interrupted. JAX is imported by the commands, not by the help.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from meanformer.experiments.tour import Scene, Tour

EXPERIMENTS = {"tour": "the same tokens through every kind of attention, side by side"}

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        import meanformer

        print(f"meanformer {meanformer.__version__}")
        raise typer.Exit
    return wanted


@app.callback(epilog="Start with `meanformer run`; `meanformer COMMAND --help` explains a command.")
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The dynamics of deep transformers, as a flow of measures."""


@app.command(
    epilog="Examples: `meanformer run` · `meanformer run --n 1000 --seed 7 --out runs/big` · `meanformer run --json`"
)
def run(
    name: Annotated[
        str, typer.Argument(help="The experiment: " + "; ".join(f"{k} ({v})" for k, v in EXPERIMENTS.items()) + ".")
    ] = "tour",
    out: Annotated[Path | None, typer.Option(help="Folder for pictures and numbers.", show_default="runs/NAME")] = None,
    n: Annotated[int, typer.Option(help="Number of tokens, at least 5.")] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the tokens: the same seed gives the same tokens.")] = 0,
    animation: Annotated[
        bool, typer.Option("--animation/--no-animation", help="Also write an animation (GIF).")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON instead of a table.")] = False,
) -> None:
    """Run an experiment, by default the tour: the same tokens through every kind of attention.

    Prints a table (final radius and its bound, clusters, effective rank, steps, seconds, outcome) and writes
    tour.png, clusters.gif and tour.json. What is compiled is kept in the user's cache folder, which makes the next run
    faster; `MEANFORMER_CACHE=0` in the environment turns that off.
    """
    from meanformer.experiments.compiled import keep_compiled

    keep_compiled()  # before JAX is loaded
    from meanformer import _checks as checks

    checks.one_of(name, "this experiment", EXPERIMENTS)
    from meanformer.experiments.tour import run_tour

    tour = run_tour(Path("runs") / name if out is None else out, n, seed, animation, watch=_watched)
    if as_json:
        print(json.dumps(tour.as_dict(), indent=2, allow_nan=False))
    else:
        _print_tour(tour)


def _watched(scenes: "list[Scene]") -> "Iterator[Scene]":
    """The scenes one by one, with a progress display on a terminal and nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns: tuple[Any, ...] = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(scenes))
        for scene in scenes:
            progress.update(task, description=f"{scene.name:<16}")
            yield scene
            progress.advance(task)
        progress.update(task, description="drawing         ")


def _print_tour(tour: "Tour") -> None:
    from rich.console import Console
    from rich.table import Table

    from meanformer.experiments.tour import outcome_words

    table = Table(title=f"The tour: {tour.n} tokens, seed {tour.seed}", title_justify="left", title_style="bold")
    table.add_column("kind")
    for heading in ("radius", "bound", "clusters", "rank", "steps", "seconds"):
        table.add_column(heading, justify="right")
    table.add_column("outcome")
    for row in tour.rows:
        bound = "—" if row.bound is None else f"{row.bound:.4g}"
        numbers = (f"{row.radius:.4g}", bound, str(row.clusters), f"{row.effective_rank:.2f}", str(row.steps))
        table.add_row(row.name, *numbers, f"{row.seconds:.1f}", outcome_words(row))
    # A pipe has no width: print the table whole.
    console = Console() if sys.stdout.isatty() else Console(width=110)
    console.print(table)
    print("radius: of the tokens themselves, with its bound where a theorem gives one; clusters and (effective) rank:")
    print("of the picture, in its frame; seconds include compiling.")
    print(f"Done in {tour.seconds:.0f} s. Written:", *(f"  {name}" for name in tour.files), sep="\n")


def main() -> None:
    """The entry point: runs the command and turns errors into words and exit codes."""
    try:
        app()
    except KeyboardInterrupt:
        _interrupted()
    except SystemExit as stop:  # typer ends every command with one, and has its own for Ctrl-C
        if stop.code == 130:
            _interrupted()
        raise
    except Exception as error:
        from meanformer._checks import InputError

        refused = isinstance(error, InputError)
        print(f"{'Refused' if refused else type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2 if refused else 1)


def _interrupted() -> None:
    print("Interrupted.", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: a compilation that was cut short makes the interpreter crash while it tidies up (jaxlib 0.10.1).
    os._exit(130)
