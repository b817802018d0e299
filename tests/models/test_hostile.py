"""Models that are meant to do harm: nothing runs, nothing outside of their folder is read, the memory stays small."""

import base64
import io
import json
import os
import pickle
import struct
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_bert import bert_tensors

import meanformer as mf
from meanformer.models.files import file_in
from meanformer.models.growth import NORMALIZERS, PRE_TOKENIZERS, _of_map, check_growth
from meanformer.models.images import open_image
from meanformer.models.pickles import Suspicious, look_at
from meanformer.models.tokenizer import Tokenizer

CANARY = "canary"
TABLE = "collections OrderedDict"


class Call:
    """Pickled, it is a call of a function with these arguments."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def archive(pickled: bytes, *, name="archive/data.pkl", compressed=False, more=()) -> bytes:
    """An archive as torch writes it, or nearly."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as made:
        for entry, content in [(name, pickled), ("archive/version", b"3\n"), *more]:
            made.writestr(entry, content)
    return file.getvalue()


def old(pickled: bytes) -> bytes:
    """A file of the old format: five pickles, the fourth holds the tables."""
    one = pickle.dumps({}, protocol=2)
    return 3 * one + pickled + one


def asking_for(name: str) -> bytes:
    """A pickle that asks for `module name` and calls it."""
    return b"\x80\x02c" + name.replace(" ", "\n").encode() + b"\n(X\x01\x00\x00\x00atR."


def made_of(*instructions: bytes) -> bytes:
    return b"\x80\x02" + b"".join(instructions) + b"."


def named(name: str) -> bytes:
    return b"c" + name.replace(" ", "\n").encode() + b"\n"


def text(word: str) -> bytes:
    return b"X" + struct.pack("<I", len(word)) + word.encode()


def number(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)


def doubled(first: bytes, join: bytes, count: int = 60) -> bytes:
    """Something that has itself twice, `count` times over."""
    puts = (b"h" + bytes([k]) + b"h" + bytes([k]) + join + b"q" + bytes([k + 1]) for k in range(count))
    return first + b"q\0" + b"".join(puts)


def data(count: int, *more: bytes, kind="torch FloatStorage", key=b"U\x010") -> bytes:
    return b"(" + text("storage") + named(kind) + key + text("cpu") + number(count) + b"".join(more) + b"tQ"


LISTS = b"".join(b"]q" + bytes([k]) for k in range(60))
ATTACKS = {
    "a name alone": made_of(named("builtins eval")),
    "a reserve": made_of(named("torch.storage UntypedStorage"), number(10**12), b"\x85R"),
    "a reserve of numbers": made_of(named("torch FloatStorage"), number(10**12), b"\x85R"),
    "an old reserve": made_of(named("torch.storage TypedStorage"), number(10**12), b"\x85R"),
    "data beyond the file": made_of(data(10**12)),
    "data less than nothing": made_of(data(-1)),
    "data of no kind": made_of(data(1, kind="torch float32")),
    "data with a tuple for a name": made_of(doubled(b")", b"\x86"), data(1, key=b"h\x3c")),
    "data in parts": made_of(data(1, number(1))),
    "a tuple for a key": made_of(b"}q\xff", doubled(b")", b"\x86"), b"h\xffh\x3cK\x01s"),
    "tuples for keys": made_of(b"}(", text("a"), b"K\x01)K\x01u"),
    "a class for a key": made_of(b"}", named("torch float32"), b"K\x01s"),
    "a table of pairs": made_of(named(TABLE), b"](", doubled(b")", b"\x86"), b"K\x01e\x85R"),
    "tuples in tuples": made_of(doubled(b")", b"\x86")),
    "tuples in the names of data": made_of(b"](", doubled(b")", b"\x86"), b"e"),
    "lists in lists": made_of(LISTS, *(b"h%c(h%ch%ce" % (k, k + 1, k + 1) for k in range(59)), b"h\0"),
    "tables in tables": made_of(b"}q\0", *(b"}(K\1h%cK\2h%cuq%c" % (k, k, k + 1) for k in range(60))),
    "a list in itself": made_of(b"]q\0h\0a"),
    "very deep": made_of(b")", b"\x85" * 10**5),
    "a number that is set": made_of(b"K\x01K\x02K\x03s"),
    "a list that is set": made_of(b"]K\x02K\x03s"),
    "a table that is appended to": made_of(b"}K\x03a"),
    "a tensor that is built": made_of(named("torch._utils _rebuild_parameter"), b")R}b"),
    "a table that is built of pairs": made_of(b"}]b"),
    "a call of what was made": made_of(b"})R"),
    "a call without arguments": made_of(named(TABLE), b"]R"),
    "nothing to call": made_of(b")R"),
    "nothing to get": made_of(b"h\x07"),
    "nothing marked": made_of(b"t"),
    "a command": pickle.dumps({"w": Call(os.system, f"touch {CANARY}")}, protocol=2),
    "a command, newer": pickle.dumps({"w": Call(os.system, f"touch {CANARY}")}, protocol=4),
    "inside": pickle.dumps([{"a": ({"b": Call(exec, f"open({CANARY!r}, 'w')")},)}], protocol=2),
    "eval": asking_for("builtins eval"),
    "getattr": asking_for("builtins getattr"),
    "a codec that doubles": asking_for("_codecs encode"),
    "so many bytes": asking_for("builtins bytearray"),
    "so many numbers": asking_for("torch Tensor"),
    "a sparse tensor": asking_for("torch._utils _rebuild_sparse_tensor"),
    "a name with dots": asking_for("torch._utils _rebuild_tensor_v2.__globals__"),
    "another pickle": asking_for("torch.storage _load_from_bytes"),
    "a name from the stack": b"\x80\x04X\x05\x00\x00\x00posixX\x06\x00\x00\x00system\x93.",
    "an instance": b"(iposix\nsystem\n.",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent name": b"\x80\x02Pname\n.",
    "no end": b"\x80\x02]q\x00",
    "a length beyond the file": b"\x80\x02X\xff\xff\xff\x7fabc.",
    "no pickle": b"\x80\x02\xff\xff.",
}


@pytest.mark.parametrize("wrap", [archive, old])
@pytest.mark.parametrize("name", ATTACKS)
def test_a_pickle_is_looked_at_before_it_is_read(tmp_path, monkeypatch, name, wrap):
    monkeypatch.chdir(tmp_path)
    file = Path("weights.bin")
    file.write_bytes(wrap(ATTACKS[name]))
    with pytest.raises(Suspicious):
        look_at(file)
    assert [path.name for path in Path().iterdir()] == ["weights.bin"]


ZEROS = pickle.dumps({}, protocol=2)
ARCHIVES = {
    "compressed": lambda: archive(ZEROS, compressed=True),
    "twice": lambda: archive(ZEROS, more=[("archive/data.pkl", ATTACKS["eval"])]),
    "two tables": lambda: archive(ZEROS, more=[("other/data.pkl", ATTACKS["eval"])]),
    "a program": lambda: archive(ZEROS, more=[("archive/constants.pkl", ZEROS), ("archive/code/a.py", b"")]),
    "no table": lambda: archive(ZEROS, name="archive/other.pkl"),
    "something behind": lambda: archive(ZEROS) + b"x",
    "another behind": lambda: archive(ZEROS) + b"\0" * 30,
    "cut": lambda: archive(ZEROS)[:-5],
    "tar": lambda: b"archive/data.pkl".ljust(512, b"\0"),
    "nothing": lambda: b"",
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_is_as_torch_writes_it(tmp_path, name):
    file = tmp_path / "weights.bin"
    file.write_bytes(ARCHIVES[name]())
    with pytest.raises(Suspicious):
        look_at(file)


def test_a_small_file_that_becomes_a_large_one(tmp_path):
    """A gigabyte of zeros in a megabyte: refused, and not unpacked."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(2**24)) + packer.flush(zlib.Z_FULL_FLUSH)  # which stands by itself
    packed = 64 * block + packer.flush()
    name, size = b"archive/data.pkl", 2**30
    fields = (0, 8, 0, 0, 0, len(packed), size, len(name), 0)
    local = b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", 20, *fields) + name + packed
    central = b"PK\x01\x02" + struct.pack("<HHHHHHIIIHHHHHII", 20, 20, *fields, 0, 0, 0, 0, 0) + name
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)
    file = tmp_path / "weights.bin"
    file.write_bytes(local + central + end)
    assert file.stat().st_size < 2**21
    with pytest.raises(Suspicious, match="compressed"):
        look_at(file)


def test_plain_tables_are_fine(tmp_path):
    file = tmp_path / "weights.bin"
    betas = 0.9, 0.999
    shared = {"groups": [{"betas": betas}, {"betas": betas}], 0: [betas] * 1000, "none": None}
    tensors = made_of(
        b"](", data(3), data(3), data(0, kind="torch.storage UntypedStorage", key=text("1")), data(1, b"N"), b"e"
    )
    for content in (pickle.dumps(shared, protocol=2), tensors):
        file.write_bytes(archive(content))
        look_at(file)
    for content in ({"a": [1, 2.5, None, True, (1,)], "b": "text"}, 3, [1, 2], ({}, None, {"emsize": 512})):
        for wrap in (archive, old):
            file.write_bytes(wrap(pickle.dumps(content, protocol=2)))
            look_at(file)


# With torch ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_torch(tiny):
    """The folder of a tiny model whose weights are a file of torch, and its tensors."""
    torch = pytest.importorskip("torch")
    folder = Path(tiny())
    (folder / "model.safetensors").unlink()
    return torch, folder, {name: torch.tensor(array) for name, array in bert_tensors().items()}


@pytest.mark.parametrize("zipped", [True, False])
def test_what_torch_saves_is_read(in_torch, zipped):
    """Parameters, shared storages, views, tables with a history: nothing of it is suspicious."""
    torch, folder, state = in_torch
    name = "encoder.layer.0.attention.self.query.weight"
    state[name] = torch.nn.Parameter(state[name])
    whole = torch.stack([state["embeddings.LayerNorm.weight"]] * 2)
    state["embeddings.LayerNorm.weight"] = whole[1]
    from collections import OrderedDict

    table = OrderedDict(state)
    table._metadata = OrderedDict({"": {"version": 1}})  # as modules have it
    torch.save(table, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    look_at(folder / "pytorch_model.bin")
    assert mf.models.load(folder).depth == 2


@pytest.mark.parametrize("wrap", [archive, old])
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_runs(in_torch, refused, name, wrap):
    _, folder, _ = in_torch
    (folder / "pytorch_model.bin").write_bytes(wrap(ATTACKS[name]))
    refused(lambda: mf.models.load(str(folder)), "pytorch_model.bin is not a file of weights alone")
    assert not Path(CANARY).exists()


def test_a_view_that_is_larger_than_its_file(in_torch, refused):
    torch, folder, state = in_torch
    state["embeddings.word_embeddings.weight"] = torch.zeros(1).expand(2**20, 2**30)
    torch.save(state, folder / "pytorch_model.bin")
    assert (folder / "pytorch_model.bin").stat().st_size < 10**6
    refused(lambda: mf.models.load(str(folder)), "cannot fit in memory")


# safetensors ---------------------------------------------------------------------------------------------------------


def tensors(header: bytes | dict, data: bytes = b"\0" * 64, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(shape=(2, 2), offsets=(0, 16), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    "content",
    [
        tensors({}, length=10**12),
        tensors({}, length=2**64 - 1),
        tensors({"a": tensor()}, length=0),
        tensors({"a": tensor(offsets=(0, 10**15), shape=(10**14,))}),
        tensors({"a": tensor(offsets=(16, 0))}),
        tensors({"a": tensor(offsets=(-16, 0))}),
        tensors({"a": tensor(offsets=(8, 24))}),
        tensors({"a": tensor(), "b": tensor(offsets=(8, 24))}),
        tensors({"a": tensor(), "b": tensor()}),
        tensors({"a": tensor(shape=(2**62, 2**62))}),
        tensors({"a": tensor(shape=(-2, -2))}),
        tensors({"a": tensor(dtype="F33")}),
        tensors(b'{"a": ' + json.dumps(tensor()).encode() + b', "a": {"dtype": "F32"}}'),
        tensors(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        tensors(b"[" * 100_000),
        tensors({"a": 3}),
        tensors(b"\xff\xfe"),
    ],
)
def test_safetensors_that_lie(tiny, refused, content):
    folder = tiny(files={"model.safetensors": content})
    refused(lambda: mf.models.load(folder))


# Files that lie elsewhere --------------------------------------------------------------------------------------------


NAMES = ["config.json", "model.safetensors", "tokenizer.json", "vocab.txt", "preprocessor_config.json"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", ["../outside", "/etc/passwd"])
def test_links_out_of_the_folder(tiny, refused, name, target):
    folder = Path(tiny())
    Path("outside").write_text("{}")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)
    if name in ("tokenizer.json", "vocab.txt"):
        refused(lambda: mf.models.load(folder).record("text"), f"{name} is a link that leads out of the folder")
    else:
        refused(lambda: mf.models.load(folder), f"{name} is a link that leads out of the folder")


def test_parts_that_are_links(tiny, refused):
    folder = Path(tiny())
    (folder / "model.safetensors").rename("secret.safetensors")
    (folder / "part.safetensors").symlink_to("../secret.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "part.safetensors"}}))
    refused(lambda: mf.models.load(str(folder)), "part.safetensors is a link that leads out of the folder")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "part.safetensors"])
def test_pipes_and_devices_are_not_waited_for(tiny, refused, name):
    folder = Path(tiny())
    if name == "part.safetensors":
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    refused(lambda: mf.models.load(str(folder)))
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    refused(lambda: mf.models.load(str(folder)))


def test_the_cache_of_a_hub_keeps_its_files_beside_its_snapshots(tiny, refused):
    snapshot = Path(tiny(name="models--org--tiny/snapshots/0123"))
    blobs = Path("models--org--tiny/blobs")
    blobs.mkdir()
    for number, file in enumerate(list(snapshot.iterdir())):
        file.rename(blobs / str(number))
        file.symlink_to(f"../../blobs/{number}")
    assert mf.models.load(str(snapshot)).depth == 2
    assert mf.models.load("models--org--tiny").depth == 2
    # Only there, and only its own.
    Path("models--org--tiny").rename("other")
    refused(lambda: mf.models.load("other/snapshots/0123"), "leads out of the folder")
    Path("other").rename("models--org--tiny")
    Path("models--org--secret/blobs").mkdir(parents=True)
    Path("models--org--secret/blobs/0").write_bytes((snapshot / "config.json").read_bytes())
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to("../../../models--org--secret/blobs/0")
    refused(lambda: mf.models.load(str(snapshot)), "leads out of the folder")


def test_a_folder_of_links_is_no_folder_of_models(tiny, refused):
    tiny(name="elsewhere/model")
    Path("mine").mkdir()
    Path("mine/model").symlink_to("../elsewhere/model")
    refused(lambda: mf.models.load("mine"), "this folder holds no model")
    assert mf.models.load("mine/model").depth == 2  # named by the user


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "vocab.txt"])
def test_huge_files_of_settings(tiny, refused, name):
    folder = Path(tiny())
    with (folder / name).open("wb") as file:
        file.truncate(2**40)
    call = (lambda: mf.models.load(folder)) if name == "config.json" else (lambda: mf.models.load(folder).record("a"))
    refused(call, f"{name} is too large", "1,099,511,627,776 bytes")


def test_names_that_are_none(tmp_path):
    for name in ("nul\0", "n" * 300, "..", ".", ""):
        assert file_in(tmp_path, name) is None


# Settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [10**12, -1, 0, float("nan"), float("inf"), 10**400, -(10**400), 1.5, "8", [8], {}, True]
)
@pytest.mark.parametrize("name", ["hidden_size", "num_hidden_layers", "num_attention_heads", "layer_norm_eps"])
def test_odd_numbers(tiny, refused, name, value):
    if name == "layer_norm_eps" and value in (10**12, 0, 1.5) and value is not True:
        pytest.skip("a number that is one")
    folder = tiny({name: value})
    refused(lambda: mf.models.load(folder))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"head_dim": 10**12}, "head_dim = 1000000000000"),
        ({"hidden_size": 10**12, "num_attention_heads": 1, "num_key_value_heads": 1}, "another shape|wrong kind"),
        ({"rope_theta": 1e-300}, "turn without bound"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 1e-320}}, "turn without bound"),
    ],
)
def test_rotations_without_bound(tmp_path, changes, words):
    """Their rates are computed before any tensor is read: a terabyte of them would be."""
    import re

    from meanformer.models.config import Config
    from meanformer.models.readers import READERS
    from meanformer.models.weights import Weights

    settings = {"model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    settings |= {"num_hidden_layers": 1, "hidden_act": "silu"} | changes
    with pytest.raises(mf.InputError) as found:
        READERS["llama"](Config(settings), Weights({}, np.float32))
    assert re.search(words, str(found.value))


# Pictures ------------------------------------------------------------------------------------------------------------


def png(width: int, height: int) -> bytes:
    """The head of a picture of this size, with little in it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("huge.png", png(60_000, 60_000)),
        ("wide.png", png(2**31 - 1, 1)),
        ("large.png", png(10_001, 10_000)),  # of which Pillow only warns
        ("drawing.svg", b'<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>'),
        ("print.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n(canary) (w) file\n%%EOF\n"),
        ("print.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n(canary) (w) file\n%%EOF\n"),
        ("tags.tif", b"II*\0\x08\0\0\0\xff\xff" + b"\xff" * 300),
        ("circle.tif", b"II*\0\x08\0\0\0\0\0\x08\0\0\0"),
    ],
)
def test_pictures_that_are_bombs(tmp_path, monkeypatch, refused, name, content):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    refused(lambda: open_image(name), "the image cannot be read", name)
    assert [path.name for path in Path().iterdir()] == [name]


def test_a_format_that_runs_another_program_is_not_known(tmp_path, refused, monkeypatch):
    """Pillow hands PostScript on to Ghostscript."""
    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("it was run"))
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (4, 4)).save("print.eps")
    refused(lambda: open_image("print.eps"), "the image cannot be read")


def test_a_picture_that_is_a_pipe(tmp_path, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.png")
    refused(lambda: open_image("pipe.png"), "a pipe or a device")
    refused(lambda: open_image("/dev/zero"), "a pipe or a device")


# Tokenizers ----------------------------------------------------------------------------------------------------------


def tokenizer(**parts) -> dict:
    model = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return {"version": "1.0", "added_tokens": [], **empty, "model": model} | parts


def replacing(content: str, pattern: dict, times: int = 1) -> dict:
    part = {"type": "Replace", "pattern": pattern, "content": content}
    return {"type": "Sequence", "normalizers": [part] * times}


def charsmap(**words: str) -> str:
    """A map of characters: a double array in which each of these letters is a key, then what is written for them."""
    units, written = [0] * 1024, b""
    units[0] = 256 << 10  # the offset of the root
    for letter, word in words.items():
        node = 256 ^ ord(letter)
        units[node] = ord(letter) | 1 << 8 | 512 << 10  # the letter, the end of a key, an offset
        units[node ^ 512] = len(written) | 1 << 31
        written += word.encode() + b"\0"
    return base64.b64encode(struct.pack("<I1024I", 4096, *units) + written).decode()


def several(kind: str, count: int, inside: str = "normalizers", **options) -> dict:
    return {"type": "Sequence", inside: [{"type": kind, **options}] * count}


@pytest.mark.parametrize(
    "normalizer",
    [
        replacing("aa", {"String": "a"}, 40),
        replacing("a" * 5000, {"String": "a"}),
        replacing("a" * 5000, {"Regex": "(?=.)"}),
        replacing("a", {"Regex": ""}, 12),
        {
            "type": "Sequence",
            "normalizers": [replacing("aa", {"String": "a"}, 6), replacing("aaaa", {"String": "a"}, 3)],
        },
        {"type": "Prepend", "prepend": "a" * 5000},
        {"type": "Precompiled", "precompiled_charsmap": charsmap(b="x", a="a" * 5000)},
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(struct.pack("<I", 2**23) * 2**21).decode()},
        several("ByteLevel", 40),
        several("BertNormalizer", 3000),
        {
            "type": "Sequence",
            "normalizers": [replacing("\ufdfa", {"String": "\u0644"}), {"type": "NFKD"}] * 6,  # 18 letters, 4 the same
        },
    ],
)
def test_a_tokenizer_that_makes_texts_enormous(refused, normalizer):
    refused(lambda: check_growth(tokenizer(normalizer=normalizer)), "makes texts far longer than they are")


def test_such_a_tokenizer_is_not_asked(tiny, refused):
    normalizer = replacing("a" * 5000, {"String": "a"})  # so many letters would do no harm
    folder = tiny(files={"tokenizer.json": json.dumps(tokenizer(normalizer=normalizer))})
    refused(lambda: mf.models.load(folder).record("a"), "tokenizer.json makes texts far longer than they are")


@pytest.mark.parametrize(
    "normalizer",
    [
        None,
        {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replacing("▁", {"String": " "})]},
        {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": charsmap(a="a" * 33)}]},
        {  # ALBERT: many of its kinds write several letters for one, but not for the same
            "type": "Sequence",
            "normalizers": [
                replacing('"', {"String": "``"}),
                *({"type": kind} for kind in ("NFKD", "StripAccents", "Lowercase")),
                {"type": "Precompiled", "precompiled_charsmap": charsmap(a="a" * 11)},
                replacing(" ", {"Regex": " {2,}"}),
            ],
        },
        replacing('"', {"String": "``"}, 30),
    ],
)
def test_those_of_published_models_do_not(normalizer):
    check_growth(tokenizer(normalizer=normalizer))


def test_a_map_of_characters_is_read_as_the_library_reads_it():
    """What it writes is told from what is in the file and never written."""
    from tokenizers.normalizers import Precompiled

    for words, factor in (({"a": "xyz", "b": "x" * 40}, 40), ({"c": "x"}, 1), ({}, 1)):
        data = charsmap(**words)
        library = Precompiled(base64.b64decode(data))
        assert library.normalize_str("abcd") == "".join(words.get(letter, letter) for letter in "abcd")
        unused = base64.b64encode(base64.b64decode(data) + b"x" * 5000 + b"\0").decode()
        assert _of_map(data) == _of_map(unused) == factor
    circle = struct.pack("<II", 4, 0x61 | 1 << 8)  # a key of any length
    assert _of_map(base64.b64encode(circle + b"xy\0").decode()) <= 2


BYTES = {"add_prefix_space": False, "trim_offsets": False, "use_regex": False}
LONG = "x" * 2000
PARTS = {
    "letters for bytes, again": {"pre_tokenizer": several("ByteLevel", 40, "pretokenizers", **BYTES)},
    "signs for spaces, again": {"pre_tokenizer": several("Metaspace", 9, "pretokenizers", replacement="_")},
    "a long word for what is unknown": {"model": {"type": "WordLevel", "vocab": {LONG: 0, "a": 1}, "unk_token": LONG}},
    "a long mark": {"model": {"type": "WordPiece", "vocab": {"a": 0}, "continuing_subword_prefix": LONG}},
    "a long end": {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "end_of_word_suffix": LONG}},
    "a number of two words": {"model": {"type": "BPE", "vocab": {"b": 1, "a": 0, LONG: 0}, "merges": []}},
    "both": {
        "normalizer": replacing("a" * 100, {"String": "a"}),
        "model": {"type": "WordLevel", "vocab": {"a": 1}, "unk_token": "x" * 100},
    },
}


@pytest.mark.parametrize("name", PARTS)
def test_other_parts_that_make_texts_enormous(tiny, refused, name):
    folder = tiny(files={"tokenizer.json": json.dumps(tokenizer(**PARTS[name]))})
    refused(lambda: mf.models.load(folder).record("a"), "tokenizer.json makes texts far longer than they are")


TEXT, END = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[E]", "type_id": 0}}


def template(*pieces, ids=(1,), words=("[E]",)) -> dict:
    known = {"[E]": {"id": "[E]", "ids": list(ids), "tokens": list(words)}}
    return {"type": "TemplateProcessing", "single": list(pieces), "pair": [], "special_tokens": known}


ENDS = {
    "the text again": (template(*[TEXT] * 3), "repeats the text"),
    "the text again, inside": (several("Sequence", 2, "processors", processors=[template(TEXT, TEXT)]), "repeats"),
    "many ends": (template(TEXT, *[END] * 100), "too much around"),
    "an end of many": (template(TEXT, END, ids=[1] * 100, words=["x"] * 100), "too much around"),
    "a long end": (template(TEXT, *[END] * 3, words=["x" * 2000]), "too much around"),
    "ends of ends": ({"type": "Sequence", "processors": [template(TEXT, END)] * 100}, "too much around"),
    "ends of BERT": (several("BertProcessing", 100, "processors", sep=["a", 0], cls=["b", 1]), "too much around"),
}


@pytest.mark.parametrize("name", ENDS)
def test_much_around_a_text(tiny, refused, name):
    """It comes after the text is cut, and again for each part that is cut off."""
    part, words = ENDS[name]
    folder = tiny(files={"tokenizer.json": json.dumps(tokenizer(post_processor=part))})
    refused(lambda: mf.models.load(folder).record("a"), words)


def test_no_more_tokens_than_asked_for(tiny, refused, monkeypatch):
    """Also where the file was not understood."""
    folder = tiny(files={"tokenizer.json": json.dumps(tokenizer(post_processor=template(TEXT, TEXT)))})
    monkeypatch.setattr("meanformer.models.tokenizer.check_growth", lambda settings: None)
    inner = mf.models.load(folder).tokenizer
    assert len(inner("a", 2)[0]) == 2
    refused(lambda: inner("a", 1), "more tokens than it was asked for", "2 tokens", "at most 1")


WORD = "x" * 200_000  # one letter below the other, the reader of these ends the process
VOCABULARIES = {
    "of a tree": {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0], [WORD, -1.0]]}},
    "of words": {"model": {"type": "WordLevel", "vocab": {"a": 0, WORD: 1}, "unk_token": "a"}},
    "added": {"added_tokens": [{"id": 9, "content": WORD, "special": True}]},
}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_enormous_words(tiny, refused, name):
    folder = tiny(files={"tokenizer.json": json.dumps(tokenizer(**VOCABULARIES[name]))})
    refused(lambda: mf.models.load(folder).record("a"), "a word of the vocabulary is too long", "200,000 bytes")


def test_enormous_words_of_plain_vocabularies(tiny, refused):
    folder = Path(tiny(files={"vocab.txt": f"a\n{WORD}\n"}))
    refused(lambda: mf.models.load(folder).record("a"), "a word of the vocabulary is too long")
    (folder / "vocab.txt").unlink()
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, LONG: 0}))
    refused(lambda: Tokenizer(folder, "gpt2")("a"), "makes texts far longer")


@pytest.mark.parametrize("part", [{"type": "Doubling"}, {"normalizers": []}, [], "NFC", {"type": ["NFC"]}])
@pytest.mark.parametrize("where", ["normalizer", "pre_tokenizer"])
def test_kinds_that_are_not_known(refused, where, part):
    """Nobody has looked at what they do to the length of a text."""
    refused(lambda: check_growth(tokenizer(**{where: part})), f"a {where} in tokenizer.json is of a kind", "ids=")


def test_all_kinds_of_the_library_are_known():
    from tokenizers import normalizers, pre_tokenizers

    for module, base, known in (
        (normalizers, normalizers.Normalizer, NORMALIZERS),
        (pre_tokenizers, pre_tokenizers.PreTokenizer, PRE_TOKENIZERS),
    ):
        kinds = {name for name, kind in vars(module).items() if isinstance(kind, type) and issubclass(kind, base)}
        assert kinds - {base.__name__, "Sequence"} == set(known)


@pytest.mark.parametrize("text", ["é\x01", "a b", "好", "ﷺ", "İ", "\u0390", "\U0001d1c0", "''"])
def test_no_part_makes_more_of_a_text_than_is_said(text):
    from tokenizers import normalizers, pre_tokenizers

    size = len(text.encode())
    for name, options in [*((name, {}) for name in NORMALIZERS), ("Prepend", {"prepend": "▁▁"})]:
        if name not in ("Precompiled", "Replace"):
            made = getattr(normalizers, name)(**options).normalize_str(text)
            assert len(made.encode()) <= size * NORMALIZERS[name](options or {"prepend": "▁"}) + 1e-9
    for name, options in [
        ("ByteLevel", BYTES),
        ("ByteLevel", {}),
        ("Metaspace", {}),
        ("Metaspace", {"replacement": "好"}),
    ]:
        words = getattr(pre_tokenizers, name)(**options).pre_tokenize_str(text)
        assert sum(len(word.encode()) for word, _ in words) <= size * PRE_TOKENIZERS[name](options)


def test_a_pattern_that_takes_for_ever(tiny, refused):
    """The library gives up, with a panic that is no Exception."""
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    folder = tiny(files={"tokenizer.json": json.dumps(tokenizer(pre_tokenizer=split))})
    refused(lambda: mf.models.load(folder).record("a" * 40 + "!"), "the tokenizer cannot read this text")


@pytest.mark.parametrize(
    "content",
    [
        '{"version": "1.0", "normalizer": ' + '{"type": "Sequence", "normalizers": [' * 10**5,
        "[" * 10**5,
        json.dumps(tokenizer(pre_tokenizer={"type": "Split", "pattern": {"Regex": "(((("}, "behavior": "Isolated"})),
        json.dumps(tokenizer(model={"type": "WordLevel", "vocab": {"a": 2**40}, "unk_token": "a"})),
        json.dumps(tokenizer(model={"type": "BPE", "vocab": {}, "merges": ["a b"]})),
        "\ud800".encode("utf-8", "surrogatepass"),
        "3",
    ],
)
def test_broken_tokenizers(tiny, refused, content):
    folder = tiny(files={"tokenizer.json": content})
    refused(lambda: mf.models.load(folder).record("a"))


def test_code_beside_a_tokenizer_is_not_run(tiny, refused):
    files = {"tokenizer_config.json": '{"auto_map": {"AutoTokenizer": ["tok.Tok", null]}}', "vocab.txt": "a\n"}
    folder = tiny(files=files | {"tok.py": f"open({CANARY!r}, 'w')"})
    refused(lambda: mf.models.load(folder).record("a"), "of a kind that is not known")
    assert not Path(CANARY).exists()
    assert "tok" not in sys.modules
