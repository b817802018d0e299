"""The benchmarks: the quick form holds its floors, the harness measures what it says, the report has every row."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.exact import in_numpy, tokens_of, worst_error  # noqa: E402

from benchmarks import harness, native, quick, report  # noqa: E402


@pytest.mark.nightly
def test_quick_ratios_are_above_their_floors():
    """In a process of its own, without other libraries; exit code and table."""
    command = [sys.executable, "-m", "benchmarks", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == list(quick.FLOORS)


def test_quick_fails_below_a_floor(monkeypatch, capsys):
    monkeypatch.setattr(quick, "RATIOS", {"NumPy / exact": lambda: quick.FLOORS["NumPy / exact"] * 0.99})
    assert quick.main() == 1
    out, err = capsys.readouterr()
    assert "TOO LOW" in out
    assert "NumPy / exact" in err
    monkeypatch.setattr(quick, "RATIOS", {"NumPy / exact": lambda: quick.FLOORS["NumPy / exact"]})
    assert quick.main() == 0


def test_ratios_are_medians_of_rounds_in_turn(monkeypatch):
    monkeypatch.setattr(harness, "SHORTEST", 0.0)  # each call once in a round
    order = []
    calls = {name: lambda n=name: order.append(n) for name in ("a", "b")}
    timings = harness.side_by_side(calls, 5)
    assert [len(t.rounds) for t in timings.values()] == [5, 5]
    assert "".join(order) == "aabb" + "ab" + "ba" + "ab" + "ba" + "ab"  # two calls before, then rounds to and fro
    slow, fast = harness.Timing(0.0, [2.0, 4.0, 90.0]), harness.Timing(9.0, [1.0, 1.0, 3.0])
    assert harness.ratio(slow, fast) == 4.0
    assert fast.compiling == 8.0
    with pytest.raises(ValueError, match="at least 5"):
        harness.side_by_side(calls, 4)


def test_growth_exponents():
    np.testing.assert_allclose(harness.growth([10, 100, 1000], [1.0, 100.0, 1000.0]), [2.0, 1.0], rtol=1e-12)


@pytest.mark.parametrize("value, words", [(2.5, "2.5 s"), (0.01234, "12.3 ms"), (4.2e-5, "42 µs")])
def test_times_have_units(value, words):
    assert harness.seconds(value) == words


def test_the_numpy_baseline_and_the_loop_by_hand_are_right():
    """Else a ratio would be one to something that computes less."""
    x = tokens_of(1040, 2, "float64")
    assert worst_error(x, in_numpy(x)()) < 1e-14
    library = native.compiled_loop()
    if library is None:
        pytest.skip("no C compiler that takes simd.c")
    for dtype, tolerance in (("float64", 1e-13), ("float32", 3e-6)):
        x = tokens_of(1040, 2, dtype)
        assert worst_error(x, native.attention(library, x)()) < tolerance
    with pytest.raises(ValueError, match="small norm"):
        native.attention(library, 100 * x)


def test_the_report_is_made_of_the_parts_that_are_there(tmp_path, monkeypatch):
    part = harness.Part("exact", "Exact", [harness.Table("A table", ["n", "run"], [["1", "2 s"]])])
    part.at_least("a ratio", 1.5, 2.0)
    part.at_most("an error", 1e-7, 1e-6)
    part.stated("a time", "3 s")
    part.facts = harness.facts() | {"peak_bytes": 2e9, "wall_seconds": 1, "cpu_seconds": 2, "date": "today"}
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    (tmp_path / "exact.json").write_text(json.dumps(part, default=vars))
    page = report.report(report.parts_found(["exact", "fast"]))
    for line in (
        "| a ratio | 1.5 | at least 2 | **missed** |",
        "| an error | 1e-07 | at most 1e-06 | met |",
        "| a time | 3 s | stated |  |",
        "| 1 | 2 s |",
    ):
        assert line in page.splitlines()
    assert "peak memory 2.00 GB" in page
    assert f"jax {part.facts['versions']['jax']}" in page


def test_an_unknown_part_is_refused():
    command = [sys.executable, "-m", "benchmarks", "exat"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 2
    assert "no such part: exat" in done.stderr
