"""Strict settings for the whole suite; see CONTRIBUTING.md, Tests."""

import atexit
import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

import compiled
from nightly import NIGHT, waits

# Two workers share two cores, so each computes on one thread. XLA sizes its pool by NPROC (its flags about
# threads are accepted but change nothing on CPU); OpenBLAS serves jax.numpy.linalg. Workers inherit all this.
os.environ.setdefault("NPROC", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["MPLBACKEND"] = "Agg"
os.environ["JAX_ENABLE_X64"] = "1"
# What is compiled is shared by the workers, and by the processes that tests start, but begins as on a fresh machine.
if "MEANFORMER_CACHE_DIR" not in os.environ:
    os.environ["MEANFORMER_CACHE_DIR"] = tempfile.mkdtemp(prefix="meanformer-tests-")
    atexit.register(shutil.rmtree, os.environ["MEANFORMER_CACHE_DIR"], ignore_errors=True)
if NIGHT:
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "0"
else:
    if "XLA_FLAGS" not in os.environ:
        os.environ["XLA_FLAGS"] = compiled.known(compiled.FLAGS)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(compiled.FOLDER)
    # On some processors XLA tells of each program in that cache what it was compiled for, on the error stream.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import hypothesis
import jax
import jaxtyping
import pytest

if NIGHT:  # shapes in annotations are checked at each call, which takes a tenth of the time
    jaxtyping.install_import_hook("meanformer", "beartype.beartype")

# Tracing makes very many objects and little garbage: to look for it after each 700 of them takes 3 to 5 % of the time.
gc.set_threshold(50_000, 10, 10)

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Derandomised: the same verdict each time. No deadline: the first example of each shape compiles.
hypothesis.settings.register_profile(
    "meanformer",
    deadline=None,
    derandomize=True,
    max_examples=30 if NIGHT else 10,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("meanformer")

# Each compiled program maps some memory, and a process has 65,530 maps by default on Linux: beyond, it crashes.
MOST_MAPS = 20_000


def pytest_configure(config):
    if NIGHT and config.option.markexpr == "not nightly":
        config.option.markexpr = ""
    if not hasattr(config, "workerinput") and "MEANFORMER_MUTANT" not in os.environ:  # two mutants run at a time
        compiled.tidy()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if waits(item.nodeid):
            item.add_marker("nightly")


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Forget compiled programs between modules when there are very many."""
    yield
    from meanformer._programs.call import forget

    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        forget()


@pytest.fixture(scope="session")
def browser():
    """One browser for all tests that look at a page."""
    from browsers import launched

    with launched() as started:
        yield started


@pytest.fixture
def as_a_user():
    """A test that calls as users do, whose annotations nobody checks."""
    from oracles.refusals import as_users

    with as_users():
        yield


@pytest.fixture
def heeded():
    """Signals count, also in a suite that was started in the background and ignores some."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def own_programs(monkeypatch):
    """For a test that changes what programs are traced from: it uses none of those before it, and leaves none."""
    from meanformer._programs.call import forget

    monkeypatch.setenv("MEANFORMER_CACHE", "0")
    with compiled.without_the_cache_of_jax():
        for forgotten in (jax.clear_caches, forget):
            forgotten()
        yield
        for forgotten in (jax.clear_caches, forget):
            forgotten()
