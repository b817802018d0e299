"""Run the mutation check; the exit code is not zero when a mistake survives, or a test fails without one."""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from . import __doc__ as about
from .mutants import PARTS
from .mutators import PACKAGE, Mutant

ROOT = PACKAGE.parents[1]


def pytest(tests: tuple[str, ...], sources: dict[Path, str], *options: str) -> tuple[str | None, str]:
    """The first of these tests that fails where the package has these sources, or None; and what pytest said."""
    with tempfile.TemporaryDirectory() as folder:
        mistake = Path(folder, "sources.json")
        mistake.write_text(json.dumps({str(path): text for path, text in sources.items()}))
        path = os.pathsep.join(str(place) for place in (Path(__file__).parent / "hook", ROOT / "src"))
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=line", *options, *tests]
        environment = os.environ | {"MEANFORMER_MUTANT": str(mistake), "PYTHONPATH": path}
        environment.pop("MEANFORMER_CACHE_DIR", None)  # programs compiled without the mistake
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what has no mistake is not read anew by each process
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    failed = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    said = done.stdout[-1500:] + done.stderr[-500:]
    # Anything but "all passed" and "a test failed" is a fault of this check: no such test, a module that is not read.
    if done.returncode not in (0, 1) or (done.returncode == 1 and failed is None):
        raise RuntimeError(f"pytest ended with code {done.returncode}: {said}")
    return failed.group(1) if failed else None, said


def verdict(mutant: Mutant) -> dict:
    """Which test catches a mistake, in how many seconds."""
    start = time.monotonic()
    try:
        caught, _ = pytest(mutant.tests, mutant.sources(), "-x", "-n", "0")
        why = "" if caught else "all its tests pass"
    except RuntimeError as error:
        caught, why = None, str(error)
    return {"name": mutant.name, "caught": caught, "why": why, "seconds": round(time.monotonic() - start, 1)}


def state() -> str:
    """A digest of everything that a verdict depends on."""
    files = [p for folder in ("src", "tests") for p in sorted((ROOT / folder).rglob("*.py"))]
    others = ROOT / "pyproject.toml", ROOT / "tests" / "nightly.txt"
    return hashlib.sha256(b"".join(path.read_bytes() for path in [*files, *others])).hexdigest()


def known(path: Path, now: str) -> dict[str, dict]:
    """The mistakes that were caught in the package and by the tests as they are `now`."""
    lines = path.read_text().splitlines() if path.exists() else []
    verdicts = (json.loads(line) for line in lines)
    return {each["name"]: each for each in verdicts if each["state"] == now and each["caught"]}


def tell(mutant: Mutant, found: dict) -> None:
    """One line for a verdict, two if the mistake survives."""
    print(
        f"{'caught  ' if found['caught'] else 'SURVIVES'} {mutant.name:<34} {found['seconds']:4.0f} s  {mutant.mistake}"
    )
    if not found["caught"]:
        print(f"{'':9}{found['why']}")
    sys.stdout.flush()


def main() -> int:
    """Run the check."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0], prog="mutations")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these mutants, or all of these parts")
    parser.add_argument("--list", action="store_true", help="name the mutants and end")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--fresh", action="store_true", help="forget earlier verdicts")
    where = ROOT / "build" / "mutants.jsonl"
    parser.add_argument("--verdicts", type=Path, default=where, metavar="FILE", help="where verdicts are kept")
    options = parser.parse_args()
    everyone = [(part, mutant) for part, mutants in PARTS.items() for mutant in mutants]
    if options.list:
        print("\n".join(f"{part:<12} {mutant.name:<34} {mutant.mistake}" for part, mutant in everyone))
        return 0
    if unknown := set(options.only or ()) - {name for part, mutant in everyone for name in (part, mutant.name)}:
        parser.error(f"no such mutant or part: {', '.join(sorted(unknown))}")
    chosen = [mutant for part, mutant in everyone if not options.only or {part, mutant.name} & set(options.only)]
    for mutant in chosen:  # all places are looked up before any waiting
        mutant.sources()

    now = state()
    if options.fresh:
        options.verdicts.unlink(missing_ok=True)
    found = {
        name: each for name, each in known(options.verdicts, now).items() if name in {mutant.name for mutant in chosen}
    }
    if found:
        print(f"{len(found)} verdicts are known and still hold; --fresh forgets them")
    options.verdicts.parent.mkdir(exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool, options.verdicts.open("a") as kept:
        waiting = {pool.submit(verdict, mutant): mutant for mutant in chosen if mutant.name not in found}
        for done in as_completed(waiting):
            mutant = waiting[done]
            found[mutant.name] = done.result()
            kept.write(json.dumps({**found[mutant.name], "state": now}) + "\n")
            kept.flush()
            tell(mutant, found[mutant.name])
    caught = [each["caught"] for each in found.values() if each["caught"]]

    # A test that fails anyway catches nothing: all of them must pass without a mistake.
    broken, _ = pytest(tuple(sorted(set(caught))), {}, "-n", str(options.jobs)) if caught else (None, "")
    print(f"without a mistake {f'this test fails too: {broken}' if broken else 'these tests pass'}")
    print(f"{len(chosen)} mutants, {len(caught)} caught")
    return int(len(caught) < len(chosen) or broken is not None)


if __name__ == "__main__":
    sys.exit(main())
