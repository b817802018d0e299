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


def starting_path(name: str) -> Path:
    """Where `meanformer init NAME` writes: a new file NAME.toml."""
    from .. import _checks as checks

    path = Path(name)
    path = path if path.suffix == ".toml" else path.with_name(path.name + ".toml")
    if path.exists() or not path.parent.is_dir():
        checks.refuse(
            f"{path} cannot be written",
            got="a file of that name" if path.exists() else f"no folder {path.parent}",
            expected="a new file in a folder that exists",
            remedy="choose another name",
        )
    return path


def starting_file(name: str, like: str | None = None) -> str:
    """The text of an experiment file to start from, which runs as it is: one with comments on all options, or one of
    the library.
    """
    if like is not None:
        from .. import _checks as checks

        return library()[checks.one_of(like, "this experiment", library())].read_text(encoding="utf-8")
    return START.read_text(encoding="utf-8").replace("NAME", name)
