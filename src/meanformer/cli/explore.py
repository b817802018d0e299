"""`meanformer explore`: the interactive page."""

from pathlib import Path
from typing import Annotated

import typer


def explore(
    what: Annotated[
        str | None,
        typer.Argument(help="Begin with an experiment of `meanformer list`, a TOML file, or a run folder."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port; 0: any that is free.", show_default="8642 or the next"),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; by default only this machine can reach it.")] = (
        "127.0.0.1"
    ),
    name: Annotated[
        list[str] | None,
        typer.Option(help="With --host: a name by which this machine is reached, e.g. lab.example. May be repeated."),
    ] = None,
    runs: Annotated[Path, typer.Option(help="The folder with the runs that can be replayed.")] = Path("runs"),
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    workers: Annotated[int, typer.Option(min=1, max=16, help="How many runs are computed at once.")] = 2,
    idle: Annotated[
        float, typer.Option(min=0.01, help="End after so many minutes in which nobody asks for anything.")
    ] = 60.0,
) -> None:
    """Open the explorer, an interactive page: choose an attention and matrices, drag tokens, and watch them move.

    It computes on this machine, and needs no network. What is found there can be exported as an experiment file for
    `meanformer run`. Needs the extra `app`: `pip install -e ".[app]"`.
    """
    try:
        from meanformer.app.launch import explore as launch
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "starlette", "websockets"):
            raise
        from meanformer import _checks as checks

        checks.refuse(
            "the explorer needs the extra `app`",
            got=f"no package {error.name}",
            expected="fastapi, uvicorn and websockets",
            remedy='pip install -e ".[app]", in the clone of meanformer',
        )
    launch(
        what,
        host=host,
        port=port,
        names=name or (),
        runs=runs,
        workers=workers,
        idle_minutes=idle,
        browser=browser,
    )
