"""Memory of one exact velocity of 20,000 tokens: O(n), not O(n^2) (a 20,000 x 20,000 array would take 20 GB)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = """
from pathlib import Path

import jax
import jax.random as jr
import meanformer as mf


def peak():
    # Not getrusage: its maximum is inherited from the process that started this one.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


I = jax.numpy.eye(2)
field = mf.Softmax(I, I, I)
law = mf.uniform_ball(d=2)
mf.velocity(field, law.sample(10, key=jr.key(0))).block_until_ready()
before = peak()
velocity = mf.velocity(field, law.sample(20_000, key=jr.key(0)))
assert bool(jax.numpy.isfinite(velocity).all()) and velocity.shape == (20_000, 2)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")
def test_one_velocity_of_twenty_thousand_tokens() -> None:
    environment = {**os.environ, "JAX_ENABLE_X64": "1"}
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    extra = int(done.stdout) / 1e9
    print(f"one exact velocity, n = 20,000, d = 2: {extra:.3f} GB above the interpreter")
    # The tokens alone take a megabyte: less would mean that nothing was measured.
    assert 1e-3 < extra < 1.5
