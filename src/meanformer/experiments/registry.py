"""The experiments that come with the package, and a file to start from. Nothing here imports JAX at start."""

import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "library"
START = FOLDER / "start.txt"


def library() -> dict[str, Path]:
    """The files of the library, by name: the tour first."""
    paths = sorted(FOLDER.glob("*.toml"), key=lambda path: (path.stem != "tour", path.stem))
    return {path.stem: path for path in paths}


def titles() -> dict[str, str]:
    """What each experiment of the library is, in a line."""
    return {name: tomllib.loads(path.read_text(encoding="utf-8"))["title"] for name, path in library().items()}


def describe(name: str) -> dict[str, Any]:
    """An experiment of the library: a line, what it is about, its kind, and what it costs."""
    from .config import read_experiment
    from .cost import duration, estimate

    experiment = read_experiment(name)
    cost = estimate(experiment)
    return {
        "name": name,
        "line": experiment.title,
        "about": experiment.about.strip(),
        "kind": experiment.kind,
        "cost": f"about {duration(cost.seconds)}",
        "seconds": cost.seconds,
        "bytes": cost.bytes,
    }


def start(name: str, like: str | None = None) -> Path:
    """Write an experiment file to start from, a new file NAME.toml: one with comments on all options, or one of the
    library.

    **Returns:** its path.
    """
    from .. import _checks as checks

    path = Path(name)
    path = path if path.suffix == ".toml" else path.with_name(path.name + ".toml") if path.name else path
    text = starting_file(path.stem, like)
    if not path.stem.isprintable():
        checks.refuse(
            "this is no name of an experiment",
            got=ascii(path.stem),
            expected="letters that can be printed",
            remedy="choose another name",
        )
    try:
        with path.open("x", encoding="utf-8") as file:  # new: what is there, even a link that leads nowhere, stays
            try:
                file.write(text)
                file.flush()
            except OSError:
                path.unlink()
                raise
    except (OSError, ValueError) as error:
        there = isinstance(error, FileExistsError | IsADirectoryError)
        checks.refuse(
            f"{path} cannot be written",
            got="a file of that name" if there else getattr(error, "strerror", None) or str(error),
            expected="a new file in a folder that exists, and in which you may write",
            remedy="choose another name" if there else "choose another place, or make this one writable",
        )
    return path


def starting_file(name: str, like: str | None = None) -> str:
    """The text of such a file, which runs as it is."""
    if like is not None:
        from .. import _checks as checks

        return library()[checks.one_of(like, "this experiment", library())].read_text(encoding="utf-8")
    return START.read_text(encoding="utf-8").replace("NAME", name)
