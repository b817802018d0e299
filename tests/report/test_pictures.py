"""A report holds pictures of its own folder, and nothing else of the machine, whatever results.json names."""

import base64
import os

import pytest

from meanformer.report import pictures
from meanformer.report.pictures import Pictures
from meanformer.report.run import write_report
from meanformer.store.errors import FolderError
from report._folders import SVG, folder, record, results, write

SECRET = b"what nobody else may read"


@pytest.fixture
def run(tmp_path):
    """A run folder beside a secret, with links of all kinds in it."""
    path = folder(tmp_path / "run", found=results())
    for place in (tmp_path, tmp_path / "elsewhere"):
        place.mkdir(exist_ok=True)
        (place / "secret.svg").write_bytes(SECRET)
    (path / "link.svg").symlink_to(tmp_path / "secret.svg")
    (path / "out").symlink_to(tmp_path / "elsewhere")
    (path / "inner.svg").symlink_to("figures/paths.svg")
    (path / "zero.svg").symlink_to("/dev/zero")
    (path / "circle.svg").symlink_to("circle.svg")
    (path / "dangling.svg").symlink_to("nowhere.svg")
    (path / "folder.svg").mkdir()
    os.mkfifo(path / "pipe.svg")
    (path / "notes.txt").write_bytes(SECRET)
    return path


def test_pictures_of_the_folder_are_shown(run):
    assert base64.b64encode(SVG.encode()).decode() in Pictures(run).figure("figures/paths.svg", "caption")


@pytest.mark.parametrize(
    "name",
    [
        "inner.svg",
        "./figures/paths.svg",
        "figures/../figures/paths.svg",
        "../secret.svg",
        "figures/../../secret.svg",
        "{tmp}/secret.svg",
        "{tmp}/run/../secret.svg",
        "link.svg",
        "out/secret.svg",
        "zero.svg",
        "circle.svg",
        "dangling.svg",
        "folder.svg",
        "pipe.svg",
        "notes.txt",
        "run.json",
        "/dev/zero",
        "/proc/self/environ",
        "",
        ".",
        "nul\0.svg",
        "a" * 300 + ".svg",
        "<img src=x onerror=alert(1)>.svg",
    ],
)
def test_nothing_else_is(run, tmp_path, name):
    shown = Pictures(run).figure(name.replace("{tmp}", str(tmp_path)), "A caption.")
    assert "There is no picture" in shown
    assert "A caption." in shown
    assert "data:" not in shown
    assert "<img" not in shown


def test_a_report_names_what_is_missing(run):
    write(run / "results.json", results(figures=[{"name": "paths", "file": "link.svg", "caption": "A caption."}]))
    page = write_report(run).read_text()
    assert "There is no picture link.svg in the folder" in page
    assert base64.b64encode(SECRET).decode()[:-4] not in page


def test_a_page_holds_so_much(run, monkeypatch):
    size = len(SVG)
    monkeypatch.setattr(pictures, "LARGEST_PAGE", 2 * size)
    shelf = Pictures(run)
    shown = ["data:" in shelf.figure("figures/paths.svg", "") for _ in range(4)]
    assert shown == [True, True, False, False]
    monkeypatch.setattr(pictures, "LARGEST_FILE", size - 1)
    assert "data:" not in Pictures(run).figure("figures/paths.svg", "")


def test_a_sparse_file_of_a_terabyte_is_not_read(run):
    with (run / "huge.png").open("wb") as file:
        file.truncate(2**40)
    assert "There is no picture" in Pictures(run).figure("huge.png", "")


@pytest.mark.parametrize("name", ["../other", "/other", "..", ".", "a/../../other"])
def test_a_case_is_a_name(tmp_path, name):
    """Not a path to a run that is elsewhere."""
    folder(tmp_path / "other", record(title="of somebody else"))
    rows = [{"name": name, "title": "a", "numbers": {}}]
    path = folder(tmp_path / "run", record(kind="cases", cases=["a"]), results(rows=rows))
    with pytest.raises(FolderError, match=r"rows\.0\.name"):
        write_report(path)


def test_a_case_that_is_a_link_is_no_case(tmp_path):
    folder(tmp_path / "other", record(title="of somebody else"), results(summary="private"))
    rows = [{"name": "a", "title": "a", "numbers": {}}]
    path = folder(tmp_path / "run", record(kind="cases", cases=["a"]), results(rows=rows))
    (path / "cases").mkdir()
    (path / "cases" / "a").symlink_to(tmp_path / "other")
    (path / "cases" / "b").symlink_to(tmp_path / "other")
    assert "of somebody else" not in write_report(path).read_text()


def test_commands_and_code_to_copy_quote_the_folder(tmp_path):
    name = 'run"); import os; os.system("touch canary"); ("$(touch canary)'
    path = folder(tmp_path / name)
    write(path / "manifest.json", {"segments": []})
    page = write_report(path).read_text()
    code = page.replace("&quot;", '"').replace("&#x27;", "'")
    assert 'run\\"); import os; os.system(\\"touch canary\\")' in code
    assert f"meanformer resume '{tmp_path}/run\"); import os;" in code
