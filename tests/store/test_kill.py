"""Kill -9: at steps of the writer, and at random instants of a run."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import meanformer as mf
from meanformer.store.folder import RunFolder
from store.runs import bits, long_flow

HERE = Path(__file__).parent


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.nightly)])
def test_killed_at_steps_of_the_writer(every):
    """Each of its kinds of step, the last of a segment, and every so many."""
    done = subprocess.run([sys.executable, str(HERE / "killed.py"), str(every)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["steps"] > 100
    assert told["kills"] >= told["steps"] / every
    assert told["looks"] > 100 / every
    assert {
        "half of a write",
        "before fsync",
        "after fsync",
        "before rename",
        "after rename",
        "after make_folder",
    } <= set(told["killed"])


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.nightly)])
def test_killed_at_random_instants_of_a_run(kills, tmp_path):
    path, draw = tmp_path / "run", random.Random(kills)
    whole = long_flow()
    total = int(whole.stats["segments"]) + 2
    script = (
        f"import sys; sys.path.insert(0, {str(HERE.parent)!r})\n"
        "from store.runs import long_flow\nimport meanformer as mf\n"
        f"long_flow(mf.Journal({str(path)!r}, every=0))"
    )
    killed = 0
    while killed < kills:
        if RunFolder(path).exists() and len(RunFolder(path).manifest) >= total - 1:
            path.rename(tmp_path / f"old{killed}")  # nearly done: from the beginning
        before = len(RunFolder(path).manifest)
        child = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE)
        wanted = draw.randint(before, total - 2)
        while child.poll() is None and len(RunFolder(path).manifest) <= wanted:
            time.sleep(0.001)  # and all the while the folder can be read
        time.sleep(draw.uniform(0, 0.01))
        child.send_signal(signal.SIGKILL)
        _, errors = child.communicate()
        assert not errors or child.returncode in (0, -signal.SIGKILL), errors.decode()[-2000:]
        killed += child.returncode == -signal.SIGKILL
        if len(RunFolder(path).manifest) >= 2:
            assert mf.load(path).times.size >= 1
    assert bits(long_flow(mf.Journal(path))) == bits(whole) == bits(mf.load(path))


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_thousand_kills_of_all_kinds_of_runs(tmp_path):
    """Tokens, layers, endless, densities, cases, sweeps with workers, models and reproductions."""
    kills = int(os.environ.get("MEANFORMER_KILLS", "1000"))
    command = [sys.executable, str(HERE / "storm.py"), str(tmp_path / "storm"), str(kills)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert sum(counts["kills"] for counts in told.values()) >= kills
    assert all(counts["whole"] for counts in told.values())
    print(told)
