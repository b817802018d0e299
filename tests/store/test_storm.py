"""Runs of all kinds, killed at random instants: nothing is lost, and the bits are the same."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_thousand_kills(tmp_path):
    """The days have `test_kill.py` and `test_adversity.py`."""
    kills = int(os.environ.get("MEANFORMER_KILLS", "1000"))
    done = subprocess.run(
        [sys.executable, str(HERE / "storm.py"), str(tmp_path / "storm"), str(kills)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-5000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert sum(counts["kills"] for counts in told.values()) >= kills
    assert all(counts["whole"] for counts in told.values())
    print(told)
