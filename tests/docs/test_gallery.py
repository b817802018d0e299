"""The gallery: every picture of the documentation, each with a command that exists and names the file it writes."""

import importlib.util
import re
import shlex
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from docs.pages import DOCS, PAGES, ROOT, name_of
from meanformer.experiments import registry
from meanformer.experiments.names import FIGURES
from meanformer.experiments.reproductions import PAPERS

_SPEC = importlib.util.spec_from_file_location("gallery_pictures", DOCS / "pictures" / "gallery.py")
assert _SPEC is not None and _SPEC.loader is not None
gallery = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(gallery)

ENTRIES = list(gallery.entries((DOCS / "gallery.md").read_text()))
IDS = [Path(entry.picture).name for entry in ENTRIES]


def test_the_pictures_of_the_gallery_are_the_files_of_the_folder():
    there = sorted(f"img/{path.name}" for path in (DOCS / "img").iterdir())
    assert sorted(entry.picture for entry in ENTRIES) == there


def test_each_picture_is_there_once_and_its_alt_text_is_its_own():
    assert max(Counter(entry.picture for entry in ENTRIES).values()) == 1
    assert [alt for alt, count in Counter(entry.alt for entry in ENTRIES).items() if count > 1] == []


def test_the_pictures_of_the_other_pages_are_in_the_gallery():
    for page in PAGES:
        for target in re.findall(r"!\[[^\]]*\]\(([^)#?]+)\)", page.read_text()):
            if not target.startswith("http"):
                picture = (page.parent / target).resolve().relative_to(DOCS).as_posix()
                assert picture in {entry.picture for entry in ENTRIES}, f"{name_of(page)}: {target}"


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_each_picture_is_small_and_described(entry):
    path = DOCS / entry.picture
    assert path.stat().st_size <= gallery.MORE_BYTES.get(path.name, 500_000 if path.suffix == ".gif" else 120_000)
    assert 20 <= len(entry.alt) <= 120 and not entry.alt.endswith(".")
    with Image.open(path) as image:
        assert image.width >= 400
        corner = image.convert("RGB").getpixel((0, 0))
    assert min(corner) >= 240, "paper is white, or nearly"


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_each_command_exists_and_writes_the_picture(entry):
    program, *words = shlex.split(entry.command)
    if program == "python":
        script, *options = words
        code = (ROOT / script).read_text()
        assert all(f'"{option}"' in code for option in options if option.startswith("--"))
        (out,) = re.findall(r'"--out", type=Path, default=Path\("([^"]+)"\)', code)
        if script.startswith("docs/"):  # it puts the pictures in place itself
            assert out == "docs/img" and entry.source == f"docs/{entry.picture}"
        elif entry.source.endswith(".gif"):
            assert options == ["--film"] and entry.source == str(Path(out).with_suffix(".gif"))
        else:
            source = Path(entry.source)  # the script may put its name together: f"gaussian_{name}.png"
            named = source.name in code or f'"{source.stem.split("_")[-1]}"' in code
            assert entry.source == out or (source.parent == Path(out) and named)
        return
    assert program == "meanformer" and words[0] in {"run", "reproduce"}
    assert words[1] in (registry.library() if words[0] == "run" else PAPERS)
    assert Path(entry.source).parent == Path("runs") / words[1] / "figures"


def test_every_experiment_has_a_picture_that_it_draws():
    shown = {}
    for entry in ENTRIES:
        if entry.command.startswith("meanformer run "):
            name = entry.command.split()[2]
            shown[name] = Path(entry.source).stem.split("-")[0]
            assert entry.source.startswith(f"runs/{name}/figures/")
    assert shown.keys() == registry.library().keys()
    for name, figure in shown.items():
        assert figure in FIGURES, f"{name}: {figure}"
        wanted = tomllib.loads(registry.library()[name].read_text()).get("figures", {}).get("draw")
        assert wanted is None or figure in wanted, f"{name}: {figure}"


def test_an_entry_without_a_command_is_told():
    """The reader of the page takes no command from a neighbour."""
    text = "![one](img/a.png)\n\n![two](img/b.png)\n\n```console\nmeanformer run x\n# runs/x/figures/y.svg\n```\n"
    first, second = gallery.entries(text)
    assert first.command == "" and second[2:] == ("meanformer run x", "runs/x/figures/y.svg")


def test_pictures_become_small_and_white(tmp_path):
    """An image on the paper of our figures turns white, never larger than it was."""
    source, picture = tmp_path / "source.png", tmp_path / "picture.png"
    Image.new("RGB", (500, 300), gallery.style.PAPER).save(source)
    gallery.place(source, picture)
    with Image.open(picture) as image:
        assert image.size == (500, 300) and image.convert("RGB").getpixel((5, 5)) == (255, 255, 255)
