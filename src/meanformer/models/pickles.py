"""What torch is asked to read: an archive that does not grow, with a pickle that only puts tensors into tables.

torch reads weights-only, so that no code runs. But what it allows can still fill the memory from a small file. So a
file is looked at first, without loading anything: entries that are stored as they are, and a list of instructions and
names.
"""

import pickletools
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

from .pickled import CALLED, SIZES, Machine, Suspicious

_DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
NAMES = frozenset({*CALLED, *SIZES, "torch.storage TypedStorage"} | {f"torch {kind}" for kind in _DTYPES})
"""All that a state dictionary is made of."""
_WORDS = (
    "PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE BINSTRING "
    "SHORT_BINSTRING BINBYTES SHORT_BINBYTES EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 SETITEM "
    "SETITEMS APPEND APPENDS BINPUT LONG_BINPUT BINGET LONG_BINGET GLOBAL REDUCE BUILD BINPERSID"
)
INSTRUCTIONS = frozenset(_WORDS.split())
"""What a pickle may tell its reader to do."""
# Pickles at the beginning of a file of the old format: a mark, a version, the machine, the tables, the names of data.
OLD_PICKLES = 5
# Ours have some hundred bytes for each tensor.
LARGEST_PICKLE = 2**26


def look_at(path: Path) -> None:
    """Raise `Suspicious` if the file is anything but tensors in tables. Nothing of it is loaded."""
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        if start.startswith(b"PK"):
            _look_at_archive(file, path.stat().st_size)
        elif start.startswith(b"\x80"):
            for _ in range(OLD_PICKLES):
                _look_at_pickle(file, path.stat().st_size)
        else:
            raise Suspicious("neither an archive of torch nor a pickle")


def _look_at_archive(file: Any, size: int) -> None:
    """An archive as torch writes it: nothing before it or after it, nothing compressed, no name twice."""
    file.seek(max(size - 22, 0))
    if file.read(4) != b"PK\x05\x06":
        raise Suspicious("an archive that does not end where the file ends")
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            packed = [entry.filename for entry in entries if entry.compress_type != zipfile.ZIP_STORED]
            names = [entry.filename for entry in entries]
            if packed:
                raise Suspicious(f"{packed[0]} is compressed, which torch never does")
            if len(set(names)) < len(names) or sum(entry.file_size for entry in entries) > size:
                raise Suspicious("entries that cover each other")
            found = [entry for entry in entries if entry.filename.rsplit("/", 1)[-1] == "data.pkl"]
            if len(found) != 1 or any(name.endswith("constants.pkl") for name in names):
                raise Suspicious("an archive of something else than tensors")
            if found[0].file_size > LARGEST_PICKLE:
                raise Suspicious(f"a table of {found[0].file_size:,} bytes")
            _look_at_pickle(BytesIO(archive.read(found[0])), size)
    # What zipfile raises for archives that are broken, in a format it does not know, encrypted, or cut off.
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise Suspicious(str(error)) from error


def _look_at_pickle(file: Any, size: int) -> None:
    """One pickle in a file of this size: its instructions, the names that it asks for, and what it would make."""
    start, machine = file.tell(), Machine()
    try:
        for instruction, argument, place in pickletools.genops(file):
            if instruction.name == "GLOBAL" and argument not in NAMES:
                raise Suspicious(f"the name {str(argument)[:80].replace(' ', '.')!r}")
            if instruction.name not in INSTRUCTIONS:
                raise Suspicious(f"the instruction {instruction.name}")
            if (place or 0) - start > LARGEST_PICKLE:
                raise Suspicious("a table without end")
            machine.follow(instruction.name, argument)
        machine.check(size)
    except (LookupError, ValueError, MemoryError, OverflowError) as error:
        if isinstance(error, Suspicious):
            raise
        if isinstance(error, LookupError):
            raise Suspicious("a broken pickle") from error
        raise Suspicious(str(error) or "a broken pickle") from error
