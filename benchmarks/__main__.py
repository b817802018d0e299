"""`python -m benchmarks [PART ...]`: measures, and writes benchmarks/RESULTS.md.

Each part is a process of its own, so that threads, memory and compiled programmes of one do not touch the next. What it
found is kept in benchmarks/results/PART.json; RESULTS.md is made of all that is there, so that a part may be measured
again alone. `--quick` measures three ratios only, without other libraries, and fails when one is too low.
"""

import argparse
import dataclasses
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .harness import Part, facts
from .report import RESULTS, parts_found, write_report

PARTS = {
    "exact": "exact attention against torch, KeOps, NumPy and a loop by hand",
    "fast": "fast attention in n, against exact",
    "hard": "fast attention on clouds that are hard for it",
    "million": "a flow of a million tokens",
    "kinds": "32 heads, causal and Sinkhorn attention at n = 100 000",
    "gradients": "backward against forward",
    "sinkhorn": "Sinkhorn potentials against ott and geomloss",
    "gaussians": "Gaussian fates against projected Euler in NumPy",
    "startup": "seconds until something happens",
    "latency": "the first result and the ones after it, against plain diffrax and NumPy",
}


def measure_here(name: str, out: Path) -> None:
    """Measure one part in this process."""
    module = importlib.import_module(f".{name}", __package__)
    part: Part = module.measure(lambda text: print(f"    {text}", flush=True))
    part.facts = facts()
    out.write_text(json.dumps(dataclasses.asdict(part), indent=1) + "\n")


def measure_apart(name: str) -> bool:
    """Measure one part in a child process, and add its peak memory and its time to what it found."""
    print(f"==> {name}: {PARTS[name]}", flush=True)
    RESULTS.mkdir(exist_ok=True)
    partial, out = RESULTS / f"{name}.part", RESULTS / f"{name}.json"
    command = [sys.executable, "-m", __package__, name, "--here", str(partial)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as empty:
        # Compile times are those of a machine that has never seen the programme.
        environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "0", "KEOPS_CACHE_FOLDER": empty}
        child = subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[1])
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:
            child.kill()
            raise
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        print(f"    failed with exit code {child.returncode}", flush=True)
        return False
    found = json.loads(partial.read_text())
    found["facts"] |= {
        "peak_bytes": peak_bytes(usage),
        "wall_seconds": time.monotonic() - began,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "date": time.strftime("%Y-%m-%d"),
    }
    partial.write_text(json.dumps(found, indent=1) + "\n")
    partial.replace(out)
    print(f"    done in {found['facts']['wall_seconds']:.0f} s", flush=True)
    return True


def peak_bytes(usage: resource.struct_rusage) -> int:
    """The largest memory of a process; macOS counts it in bytes, others in kilobytes."""
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> int:
    """Read the options, measure, write."""
    listing = "\n".join(f"  {name:<10} {what}" for name, what in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=f"parts (default: all):\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="what to measure")
    parser.add_argument("--quick", action="store_true", help="three ratios only, with floors; nothing is written")
    parser.add_argument("--report", action="store_true", help="measure nothing, write RESULTS.md again")
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if options.quick:
        from .quick import main as quick

        return quick()
    if options.here is not None:
        for name in options.parts:
            measure_here(name, options.here)
        return 0
    failed = [] if options.report else [name for name in options.parts or PARTS if not measure_apart(name)]
    print(f"Written: {write_report(parts_found(list(PARTS)))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
