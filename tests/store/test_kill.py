"""Kill -9: at every step of the writer, and at random instants of a run."""

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
# More, for a longer study: MEANFORMER_KILLS=20.
KILLS = int(os.environ.get("MEANFORMER_KILLS", "2"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_every_step_of_the_writer():
    done = subprocess.run([sys.executable, str(HERE / "killed.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["steps"] > 100
    assert told["looks"] > 100
    assert {"half of a write", "before fsync", "after fsync", "before replace", "after replace"} <= set(told["kinds"])


def test_killed_at_random_instants_of_a_run(tmp_path):
    path, draw = tmp_path / "run", random.Random(KILLS)
    whole = long_flow()
    total = int(whole.stats["segments"]) + 2
    script = (
        f"import sys; sys.path.insert(0, {str(HERE.parent)!r})\n"
        "from store.runs import long_flow\nimport meanformer as mf\n"
        f"long_flow(mf.Journal({str(path)!r}, every=0))"
    )
    kills = 0
    while kills < KILLS:
        if RunFolder(path).exists() and len(RunFolder(path).manifest) >= total - 1:
            path.rename(tmp_path / f"old{kills}")  # nearly done: from the beginning
        before = len(RunFolder(path).manifest)
        child = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE)
        wanted = draw.randint(before, total - 2)
        while child.poll() is None and len(RunFolder(path).manifest) <= wanted:
            time.sleep(0.001)  # and all the while the folder can be read
        time.sleep(draw.uniform(0, 0.01))
        child.send_signal(signal.SIGKILL)
        _, errors = child.communicate()
        assert not errors or child.returncode in (0, -signal.SIGKILL), errors.decode()[-2000:]
        kills += child.returncode == -signal.SIGKILL
        if len(RunFolder(path).manifest) >= 2:
            assert mf.load(path).times.size >= 1
    assert bits(long_flow(mf.Journal(path))) == bits(whole) == bits(mf.load(path))
