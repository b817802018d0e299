"""The gallery: every picture of the documentation, each with a command that exists and names the file it writes."""

import inspect
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
import typer
from PIL import Image

import meanformer as mf
from docs.pages import DOCS, PAGES, ROOT, name_of
from docs.scripts import gallery, reproductions, small
from meanformer.cli import commands
from meanformer.experiments import registry
from meanformer.experiments.build import check
from meanformer.experiments.config import read_experiment
from meanformer.experiments.names import FIGURES
from meanformer.experiments.reproductions import PAPERS
from meanformer.experiments.reproductions import paper as paper_of
from meanformer.experiments.reproductions.runner import chosen_items

ENTRIES = list(gallery.entries((DOCS / "gallery.md").read_text(encoding="utf-8")))
IDS = [Path(entry.picture).name for entry in ENTRIES]


def test_the_pictures_of_the_gallery_are_the_files_of_the_folder():
    there = sorted(f"img/{path.name}" for path in (DOCS / "img").iterdir())
    assert sorted(entry.picture for entry in ENTRIES) == there


def test_each_picture_is_there_once_and_its_alt_text_is_its_own():
    assert max(Counter(entry.picture for entry in ENTRIES).values()) == 1
    assert [alt for alt, count in Counter(entry.alt for entry in ENTRIES).items() if count > 1] == []


def test_the_pictures_of_the_other_pages_are_in_the_gallery():
    for page in PAGES:
        for target in re.findall(r"!\[[^\]]*\]\(([^)#?]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                picture = (page.parent / target).resolve().relative_to(DOCS).as_posix()
                assert picture in {entry.picture for entry in ENTRIES}, f"{name_of(page)}: {target}"


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_each_picture_is_small_and_described(entry):
    path = DOCS / entry.picture
    assert path.stat().st_size <= gallery.MORE_BYTES.get(
        path.name, 500_000 if path.suffix == ".gif" else small.MOST_BYTES
    )
    assert 20 <= len(entry.alt) <= 120 and not entry.alt.endswith(".")
    with Image.open(path) as image:
        assert image.width >= 400
        corner = image.convert("RGB").getpixel((0, 0))
    assert min(corner) >= 240, "paper is white, or nearly"


# Commands


def parsed(words: list[str]) -> tuple[str, dict]:
    """A command of `meanformer` and its arguments, as the command line reads them: no others than it has."""
    app = typer.main.get_command(commands.app)
    name, command, rest = app.resolve_command(app.make_context("meanformer", [], resilient_parsing=True), words)
    try:
        return name, command.make_context(name, rest).params
    except Exception as error:  # of Typer's parser, which is not public
        raise AssertionError(f"meanformer {shlex.join(words)}: {error}") from error


def script(words: list[str], entry: gallery.Entry) -> None:
    """A script with options that it has, which writes the file."""
    path, *options = words
    code = (ROOT / path).read_text(encoding="utf-8")
    (out,) = re.findall(r'"--out", type=Path, default=Path\("([^"]+)"\)', code)
    source = Path(entry.source)
    if path.startswith("docs/"):  # it puts the pictures in place itself
        assert out == "docs/img" and entry.source == f"docs/{entry.picture}"
        family, _, name = source.stem.partition("_")
        assert options in ([], ["--only", name])
        assert f'"{name}": ' in code or f'"{source.name}"' in code, "a picture of this script"
        assert f'"{source.stem}"' in code or Path(path).stem == family
        assert not options or '"--only", choices=PICTURES' in code
    elif source.suffix == ".gif":
        assert options == ["--film"] and '"--film"' in code and source == Path(out).with_suffix(".gif")
    else:  # at the sizes that it has by itself; it may put the name together: f"gaussian_{name}.png"
        named = source.name in code or f'"{source.stem.split("_")[-1]}"' in code
        assert options == [] and (entry.source == out or (source.parent == Path(out) and named))


def experiment(given: dict, entry: gallery.Entry) -> None:
    """An experiment of the library, with changes with which it can be built, which draws the figure."""
    name, seed = given["experiment"], given["seed"]
    assert name in registry.library() and not given["dry_run"]
    changes = [*(given["changes"] or []), *([] if seed is None else [f"seed={seed}"])]
    chosen = read_experiment(name, changes)
    if changes:  # tests of the library check it without
        check(chosen)
    source = Path(entry.source)
    assert source.parent == (given["out"] or Path("runs") / name) / "figures"
    figure, _, number = source.stem.partition("-")
    assert figure in FIGURES
    assert chosen.figures.draw is None or figure in chosen.figures.draw
    if number:
        assert chosen.kind == "sweep" and number in (chosen.sweep.numbers or [number])


def reproduction(given: dict, entry: gallery.Entry) -> None:
    """A paper that we have, items that it has, and the figure of one of them."""
    key = given["paper"]
    assert key in PAPERS and not given["quick"] and not given["seed"]
    source = Path(entry.source)
    assert source.parent == (given["out"] or Path("runs") / key) / "figures"
    item, _, figure = source.stem.partition("-")
    assert item in {found.id for found in chosen_items(paper_of(key), given["items"])}
    code = inspect.getsource(inspect.getmodule(paper_of(key).items[item].compute))
    names = {figure, figure.replace("_", " "), re.sub(r"\dd$", "{case.d}d", figure)}  # as the code may write it
    assert any(f'"{name}"' in code for name in names), "a figure of the item"
    if Path(entry.picture).name.startswith("repro_"):  # also on the page of the paper, whose writer makes it
        assert reproductions.SHOWN[key][item] == figure
        assert Path(entry.picture).name == reproductions.picture_name(key, item)


def check_command(entry: gallery.Entry) -> None:
    """Refuse a command that does not write the file that is named below it."""
    program, *words = shlex.split(entry.command)
    if program == "python":
        script(words, entry)
        return
    assert program == "meanformer"
    name, given = parsed(words)
    assert name in {"run", "reproduce"}
    (experiment if name == "run" else reproduction)(given, entry)


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_each_command_exists_and_writes_the_picture(entry):
    check_command(entry)


@pytest.mark.parametrize(
    ("command", "source"),
    [
        ("meanformer run sigmoid --set n=50 --set tau=2 --seed 3", "runs/sigmoid/figures/paths.svg"),
        ("meanformer run sigmoid --out runs/other", "runs/other/figures/paths.svg"),
        ("meanformer reproduce castin2025 A1 A2", "runs/castin2025/figures/A1-blow_up.svg"),
        ("python docs/pictures/theory.py", "docs/img/theory_rate.png"),
    ],
)
def test_a_command_may_change_settings(command, source):
    check_command(gallery.Entry("", source.removeprefix("docs/"), command, source))


@pytest.mark.parametrize(
    ("command", "source"),
    [
        ("meanformer run sigmoid --set tua=2", "runs/sigmoid/figures/paths.svg"),
        ("meanformer run sigmoid --set tau=-1", "runs/sigmoid/figures/paths.svg"),
        ("meanformer run sigmoid --set measure.n=0", "runs/sigmoid/figures/paths.svg"),
        ("meanformer run sigmoid --tau 2", "runs/sigmoid/figures/paths.svg"),
        ("meanformer run sigmoid --dry-run", "runs/sigmoid/figures/paths.svg"),
        ("meanformer run sigmoid --out runs/other", "runs/sigmoid/figures/paths.svg"),
        ("meanformer run sigmoids", "runs/sigmoids/figures/paths.svg"),
        ("meanformer run leaders", "runs/leaders/figures/spectrum.svg"),
        ("meanformer run mean-field", "runs/mean-field/figures/curves-clusters.svg"),
        ("meanformer show runs/sigmoid", "runs/sigmoid/figures/paths.svg"),
        ("meanformer reproduce castin2024", "runs/castin2024/figures/A1-blow_up.svg"),
        ("meanformer reproduce castin2025 A2", "runs/castin2025/figures/A1-blow_up.svg"),
        ("meanformer reproduce castin2025 A99", "runs/castin2025/figures/A99-blow_up.svg"),
        ("meanformer reproduce castin2025", "runs/castin2025/figures/A1-depth.svg"),
        ("meanformer reproduce castin2025 --quick", "runs/castin2025/figures/A1-blow_up.svg"),
        ("python docs/pictures/theory.py --only density", "docs/img/theory_rate.png"),
        ("python docs/pictures/theory.py --only rates", "docs/img/theory_rates.png"),
        ("python docs/pictures/attention.py --only l2", "docs/img/attention_l2.png"),
        ("python docs/pictures/concepts.py --only clusters", "docs/img/theory_clusters.png"),
        ("python examples/clusters.py --n 5", "runs/clusters.png"),
        ("python examples/clusters.py", "runs/clusters.gif"),
        ("python examples/none.py", "runs/none.png"),
    ],
)
def test_a_command_that_has_drifted_is_told(command, source):
    with pytest.raises((AssertionError, mf.InputError, FileNotFoundError)):
        check_command(gallery.Entry("", source.removeprefix("docs/"), command, source))


def test_every_experiment_has_a_picture():
    shown = [entry.command.split()[2] for entry in ENTRIES if entry.command.startswith("meanformer run ")]
    assert sorted(shown) == sorted(registry.library())


def test_the_pictures_of_the_papers_are_those_that_the_writer_of_their_pages_makes(tmp_path):
    """With its limits, not with those of the gallery."""
    source = tmp_path / "source.png"
    Image.new("RGB", (1200, 300), small.style.PAPER).save(source)
    for name, width in (("repro_castin2025_A1.png", reproductions.SIZE[0]), ("gallery_x.png", 1200)):
        gallery.place(source, tmp_path / name)
        with Image.open(tmp_path / name) as image:
            assert image.width == width


def test_an_entry_without_a_command_is_told():
    """The reader of the page takes no command from a neighbour."""
    text = "![one](img/a.png)\n\n![two](img/b.png)\n\n```console\nmeanformer run x\n# runs/x/figures/y.svg\n```\n"
    first, second = gallery.entries(text)
    assert first.command == "" and second[2:] == ("meanformer run x", "runs/x/figures/y.svg")


def test_pictures_become_small_and_white(tmp_path):
    """An image on the paper of our figures turns white, never larger than it was."""
    source, picture = tmp_path / "source.png", tmp_path / "picture.png"
    Image.new("RGB", (500, 300), small.style.PAPER).save(source)
    gallery.place(source, picture)
    with Image.open(picture) as image:
        assert image.size == (500, 300) and image.convert("RGB").getpixel((5, 5)) == (255, 255, 255)
