"""Power failures: every state of the disk that an interrupted writer may leave can be read and gone on with."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the names of open folders")
@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.nightly)])
def test_the_power_may_fail_at_any_moment(every):
    paths = os.pathsep.join([str(HERE.parent), *sys.path])
    done = subprocess.run(
        [sys.executable, str(HERE / "power.py"), str(every)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["operations"] > 80
    assert told["states"] > 5 * told["operations"] / every
    print(told)
