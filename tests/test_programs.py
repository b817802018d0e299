"""Programs: what is compiled, when, and what is kept on disk."""

import contextlib
import functools
import json
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import compiled
import meanformer as mf
from meanformer._programs import call, executable, identity, store
from meanformer._programs.call import forget, program

POSIX = pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners and modes are those of POSIX")


class Counter:
    """Compilations by XLA, of all programs of this process."""

    def __init__(self):
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self.listen)

    def listen(self, event, seconds, **_):
        self.count += event == "/jax/core/compile/backend_compile_duration"


COUNTER = Counter()


@contextlib.contextmanager
def compilations(expected):
    before = COUNTER.count
    yield
    assert COUNTER.count - before == expected


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A store of its own for each test."""
    place = tmp_path / "programs"
    monkeypatch.setenv("MEANFORMER_CACHE_DIR", str(place))
    monkeypatch.delenv("MEANFORMER_CACHE", raising=False)
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "0")
    return place


@pytest.fixture(autouse=True, scope="module")
def without_the_cache_of_jax():
    """What JAX has kept of the last run of the suite is not whole, and never stored."""
    with compiled.without_the_cache_of_jax():
        yield


class Pair(eqx.Module):
    a: jax.Array
    b: jax.Array
    name: str = eqx.field(static=True)


def added(pair, scale, function=None):
    total = scale * (pair.a + pair.b)
    return Pair(total, pair.a, pair.name), "text", None if function is None else function(total)


X, Y = np.arange(3.0), np.ones(3)
JAX_X = jnp.asarray(X)


def new_program(function=added, **options):
    """The same function as in another process: nothing in memory."""
    return program(**options)(function) if options else program(function)


# Calls


def test_arrays_move_and_all_else_is_part_of_the_program():
    f = new_program()
    with compilations(1):
        result, text, nothing = f(Pair(JAX_X, Y, "one"), 2)
    assert isinstance(result, Pair) and result.name == "one" and text == "text" and nothing is None
    assert isinstance(result.a, jax.Array)
    np.testing.assert_array_equal(result.a, 2 * (X + Y))
    with compilations(0):  # NumPy or JAX, other values
        result, *_ = f(Pair(Y + 5, JAX_X, "one"), 2)
        np.testing.assert_array_equal(result.a, 2 * (X + Y + 5))
    with compilations(3):
        assert f(Pair(X, Y, "two"), 2)[0].name == "two"
        np.testing.assert_array_equal(f(Pair(X, Y, "one"), 3)[0].a, 3 * (X + Y))
        f(Pair(X[:2], Y[:2], "one"), 2)
    with compilations(1):
        assert f(Pair(X.astype(np.float32), Y.astype(np.float32), "one"), 2)[0].a.dtype == np.float32


def test_equal_numbers_of_other_types_are_other_programs():
    f = new_program(lambda x, n: (x, type(n), n))
    for value in (1, True, 1.0, 0.0, -0.0, "1"):
        _, kind, back = f(X, value)
        assert kind is type(value) and repr(back) == repr(value)


def test_weak_types_are_kept_apart():
    f = new_program(lambda x, s: x.astype(np.float32) * s)
    with jax.numpy_dtype_promotion("standard"):
        assert f(X, jnp.asarray(2.0)).dtype == np.float32  # weak
        assert f(X, jnp.asarray(2.0, np.float64)).dtype == np.float64


def test_the_configuration_of_jax_is_part_of_the_key(plus):
    with jax.default_matmul_precision("float32"):  # the same arrays, another program
        assert kept(plus, X) == 1
    f = new_program(lambda x: x + 1)
    assert f(X).dtype == np.float64
    with jax.enable_x64(False):
        assert f(X).dtype == np.float32
    assert f(X).dtype == np.float64
    with jax.disable_jit():
        assert f(X).dtype == np.float64
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        new_program(lambda x: jnp.log(x))(jnp.asarray(-1.0))


def test_inside_a_transformation_it_is_traced():
    f = new_program(lambda x, n: (x**n).sum())
    np.testing.assert_allclose(jax.grad(f)(jnp.asarray(X), 3), 3 * X**2)
    np.testing.assert_allclose(jax.vmap(lambda x: f(x, 2))(jnp.stack([X, Y])), [5.0, 3.0])
    np.testing.assert_allclose(jax.jit(f, static_argnums=1)(X, 2), 5.0)
    assert jax.eval_shape(lambda: f(X, 2)).shape == ()
    assert f._compiled == {}
    captured = jax.grad(lambda s: new_program(lambda x, g: g(x))(X, lambda x: (s * x).sum()))
    np.testing.assert_allclose(captured(2.0), X.sum())


def test_methods_keys_and_scalars():
    class Holder(eqx.Module):
        x: jax.Array

        @program
        def twice(self, k):
            return self.x * k

    np.testing.assert_array_equal(Holder(jnp.asarray(X)).twice(np.float64(2.0)), 2 * X)
    narrow = np.asarray(X, jnp.bfloat16)
    assert new_program(lambda x: x + x)(narrow).dtype == jnp.bfloat16
    draw = new_program(lambda key: jax.random.normal(key, (3,)))
    for _ in range(2):
        np.testing.assert_array_equal(draw(jax.random.key(1)), jax.random.normal(jax.random.key(1), (3,)))
        forget()


def test_a_failing_check_is_told_as_equinox_tells_it(folder):
    f = new_program(lambda x: eqx.error_if(x, x < 0, "negative"))
    np.testing.assert_array_equal(f(np.ones(2)), np.ones(2))
    with pytest.raises(eqx.EquinoxRuntimeError, match="negative"):
        f(-np.ones(2))
    assert not store.entries()  # what calls back to Python cannot be kept


def test_a_refusal_while_tracing_is_raised():
    def refuse(x, g):
        raise ValueError("no")

    limit = 1.0
    with pytest.raises(ValueError, match="no"):
        new_program(refuse)(X, lambda x: x > limit)


def test_small_programs_are_compiled_quickly(monkeypatch):
    seen = []
    monkeypatch.setattr(
        executable, "compiled", lambda lowered, options: seen.append(options) or (lowered.compile(), False)
    )
    f = new_program(lambda x, g: g(x))
    level = 1.0
    for size in (call.SMALL, call.SMALL + 1):
        f(np.ones(size), lambda x: x * level)
    new_program(lambda x: x, options={"name": 1})(X)
    assert seen == [call.QUICK, {}, {"name": 1}]


def test_options_that_xla_does_not_know_are_left_out():
    f = new_program(lambda x: x + 2, options={"xla_no_such_option": True})
    np.testing.assert_array_equal(f(X), X + 2)


# Functions


def test_equal_functions_share_a_program():
    f = new_program()
    with compilations(1):
        for _ in range(20):
            assert f(Pair(X, Y, ""), 1, lambda x: x.sum() > 1)[2]


def test_captured_numbers_move():
    """In the closure, as a default, as a global name, through a helper: one program, the right number each time."""
    f = new_program()
    spaces = []
    for made in range(6):
        level = float(made)
        space = {"level": level, "jnp": jnp, "helper": None}
        exec("def helper(x): return jnp.sum(x) > level", space)
        spaces.append(eval("lambda x: helper(x)", space))
    kinds = [
        [lambda x, level=float(k): x.sum() > level for k in range(6)],
        [(lambda level: lambda x: x.sum() > level)(float(k)) for k in range(6)],
        [(lambda level: lambda x: x.sum() > level[1]["k"])((2, {"k": np.float64(k)})) for k in range(6)],
        [functools.partial(lambda level, x: x.sum() > level, jnp.asarray(float(k))) for k in range(6)],
        [(lambda g: lambda x: g(x) > 0)(lambda x, k=float(k): x.sum() - k) for k in range(6)],
        [(lambda g: lambda x: g(x))(jax.jit(lambda x, k=float(k): x.sum() > k)) for k in range(6)],
        spaces,
    ]
    for functions in kinds:
        with compilations(1):
            answers = [bool(f(Pair(X, 0 * X, ""), 1, g)[2]) for g in functions]
        assert answers == [True, True, True, False, False, False]  # the sum is 3


def test_numbers_that_python_must_know_are_constants():
    f = new_program()

    def above(level):
        return lambda x: x.sum() > level if level > 1 else x.sum() < level

    for _ in range(2):
        assert [bool(f(Pair(X, 0 * X, ""), 1, above(level))[2]) for level in (0.5, 2.0, 5.0)] == [False, True, False]


def test_a_function_may_ask_what_it_was_given():
    """As an argument of the program a captured number would be something else."""
    f, r = new_program(), 2.0
    assert float(f(Pair(X, 0 * X, ""), 1, lambda x: r if isinstance(r, float) else -1.0)[2]) == 2.0

    def tried(x):
        try:
            return float(r)
        except TypeError:
            return -1.0

    assert float(f(Pair(X, 0 * X, ""), 1, tried)[2]) == 2.0


def test_an_error_of_a_jitted_function_is_raised():
    r = 2.0
    f = new_program()
    assert (f(Pair(X, 0 * X, ""), 1, jax.jit(lambda x: x * r if r > 1 else x))[2] == 2 * X).all()
    with pytest.raises(TypeError, match="incompatible shapes"):
        f(Pair(X, 0 * X, ""), 1, jax.jit(lambda x: r * x + jnp.zeros(X.size + 1)))


def test_what_reads_the_world_is_read_again(folder, tmp_path, monkeypatch):
    """Surroundings, files and clocks: a function of the same code that reads them is another one, and not kept."""
    f, file = new_program(), tmp_path / "level.txt"
    sources = ["float(os.environ['LEVEL'])", "float(np.loadtxt(file))", "float(Path(file).read_text())"]
    for level in (1.0, 5.0):
        monkeypatch.setenv("LEVEL", str(level))
        file.write_text(str(level))
        for source in sources:
            g = eval(f"lambda x: {source} + 0 * x.sum()", {"os": os, "np": np, "Path": Path, "file": str(file)})
            assert float(f(Pair(X, 0 * X, ""), 1, g)[2]) == level
    assert not list(folder.glob("*")) if folder.exists() else True


def test_a_file_named_as_a_module_of_python_is_not_trusted(tmp_path, monkeypatch):
    (tmp_path / "profile.py").write_text("K = 2.0\n")
    assert identity.library_name(functools.reduce) and identity.library_name(json)
    monkeypatch.delitem(sys.modules, "profile", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    identity._trusted.cache_clear()
    import profile

    assert identity.library_name(profile) is None
    monkeypatch.delitem(sys.modules, "profile")
    identity._trusted.cache_clear()


def test_sources_that_changed_since_they_were_imported_keep_nothing(plus, folder, monkeypatch):
    monkeypatch.setattr(executable, "_IMPORTED", 0.0)
    executable._environment.cache_clear()
    before = set(folder.iterdir())
    assert kept(plus, X) == 1 and kept(plus, X) == 1 and set(folder.iterdir()) == before
    monkeypatch.undo()
    executable._environment.cache_clear()


@pytest.mark.parametrize("kind", ["list", "dict", "array", "object", "class", "module", "global"])
def test_what_changes_is_not_used_stale(kind):
    """A function of the same code, made anew after something that it reads has changed."""
    f = new_program()

    class Holder:
        level = 0.0

    import types

    module = types.ModuleType("settings")
    things = {"list": [0], "dict": {"level": 0}, "array": np.zeros(1), "object": Holder(), "class": Holder}
    thing = things.get(kind, module)
    space = {"thing": thing, "level": 0}
    sources = {"list": "thing[0]", "array": "thing[0]", "dict": "thing['level']", "global": "level"}
    for value in (0, 5, 1):
        if kind in ("list", "array"):
            thing[0] = value
        elif kind == "dict":
            thing["level"] = value
        elif kind == "global":
            space["level"] = value
        else:
            thing.level = value
        g = eval(f"lambda x: x.sum() > {sources.get(kind, 'thing.level')}", space)
        assert bool(f(Pair(X, 0 * X, ""), 1, g)[2]) == (value < 3)


@pytest.mark.parametrize("kind", ["list", "array", "global", "closure"])
def test_a_function_that_sees_something_else_now_is_another_one(kind):
    f = new_program()
    space = {"values": np.zeros(1) if kind == "array" else [0], "level": 0}
    level = 0

    def closure(x):
        return x.sum() > level

    g = (
        closure
        if kind == "closure"
        else eval(f"lambda x: x.sum() > {'level' if kind == 'global' else 'values[0]'}", space)
    )
    for value in (0, 5, 1):
        space["level"] = space["values"][0] = level = value
        assert bool(f(Pair(X, 0 * X, ""), 1, g)[2]) == (value < 3)


def test_functions_of_other_code_are_kept_apart():
    f = new_program()
    functions = [lambda x: x.sum() > 1, lambda x: x.sum() > 2, lambda x: x.max() > 1, lambda x: x[-1]]
    functions += [lambda x, n=1: x[n], lambda x, n=2: x[n], lambda x, *, n=1: x[n], jnp.sum, jnp.max]
    keys = set()
    for function in functions:
        f(Pair(X, Y, ""), 1, function)
        keys.add(identity.opened(function).fixed)
    assert len(keys) == len(f._compiled) == len(functions)


def test_a_function_that_changes_what_it_captures_is_traced_as_often_as_ever():
    f, seen = new_program(), []
    g = lambda x: seen.append(1) or x.sum()  # noqa: E731
    for _ in range(3):
        f(Pair(X, Y, ""), 1, g)
    assert seen == [1]
    forget()
    f(Pair(X, Y, ""), 1, g)
    assert seen == [1, 1]  # not from disk either


def test_recursion_and_unreadable_code():
    def power(x, n=3):
        return x if n == 0 else 2 * power(x, n - 1)

    f, total = new_program(), 0

    def writes(x):
        nonlocal total
        total += 1
        return x

    np.testing.assert_array_equal(f(Pair(X, 0 * X, ""), 1, power)[2], 8 * X)
    level = 2.0
    np.testing.assert_array_equal(f(Pair(X, 0 * X, ""), 1, lambda x: x * eval("level", {"level": level}))[2], 2 * X)
    for _ in range(2):
        f(Pair(X, Y, ""), 1, writes)
    assert total == 1


def test_an_inline_program_is_part_of_another_one():
    def f(x):
        return jnp.sin(x) + 1

    x = jnp.asarray([1.0, 2.0])
    inline, apart = program(inline=True)(f), program(f)
    assert "jit" in str(jax.make_jaxpr(apart)(x))
    assert "jit" not in str(jax.make_jaxpr(inline)(x))
    np.testing.assert_array_equal(inline(x), apart(x))
    np.testing.assert_allclose(jax.vmap(jax.grad(inline))(x), np.cos(x), rtol=1e-14)
    with compilations(0):
        inline(np.asarray([3.0, 4.0]))


def test_options_make_another_program(folder):
    f = program(lambda x: jnp.sin(x) + 1)
    quick = f.with_options(call.QUICK)
    X = np.ones(call.SMALL + 1)  # else it would be quick by itself
    np.testing.assert_array_equal(f(X), quick(X))
    assert f._place(call._read([X], None)) != quick._place(call._read([X], None))


class Unhashable:
    __hash__ = None  # type: ignore

    def __init__(self, level):
        self.level = level

    def __call__(self, x):
        return self.level * x


def test_what_cannot_be_hashed_is_not_compiled():
    f = program(lambda x, rule: rule(x) + 1)
    X = np.asarray([1.0, 2.0])
    for level in (2.0, 3.0):
        np.testing.assert_array_equal(f(X, Unhashable(level)), level * X + 1)


def test_a_cloud_compiles_nothing():
    law = mf.uniform_cube(d=2)
    law.sample(30, key=jax.random.key(0))
    with compilations(0):
        for n in (31, 37, 43):
            law.sample(n, key=jax.random.key(n))
            mf.PointCloud(np.ones((n, 2), np.float32)).with_positions()


# On disk

SCRIPT = """
import sys, jax, jax.numpy as jnp, numpy as np, equinox as eqx
count = [0]
def listen(event, seconds, **_):
    count[0] += event == "/jax/core/compile/backend_compile_duration"
jax.monitoring.register_event_duration_secs_listener(listen)
from meanformer._programs.call import program

class Pair(eqx.Module):
    a: jax.Array
    name: str = eqx.field(static=True)

@program
def f(pair, rule, n):
    low = jnp.linalg.cholesky(pair.a @ pair.a.T + n * jnp.eye(2)), jnp.linalg.eigh(pair.a + pair.a.T)
    return Pair(jnp.linalg.solve(pair.a, pair.a @ low[0]), pair.name), low, rule(pair.a), "text"

level = float(sys.argv[1])
out = f(Pair(np.asarray([[1.0, 2.0], [3.0, 5.0]]), "name"), lambda x: x.sum() > level, 3)
np.testing.assert_allclose(out[0].a, np.linalg.cholesky([[8.0, 13.0], [13.0, 37.0]]), atol=1e-9)
print(count[0], out[0].name, bool(out[2]), out[3])
"""


def run(level=1.0, script=SCRIPT, **environment):
    command = [sys.executable, "-c", script, str(level)]
    ours = ("TF_CPP_MIN_LOG_LEVEL", "JAX_ENABLE_COMPILATION_CACHE", "JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS")
    settings = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(command, env=settings | environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""  # a user sees nothing of it
    return done.stdout.strip()


def test_another_process_compiles_nothing(folder):
    """LAPACK included, which JAX hands to XLA only when it lowers a program; and another captured number."""
    assert run() == "1 name True text"
    (entry,) = folder.iterdir()
    if hasattr(os, "getuid"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and stat.S_IMODE(entry.stat().st_mode) == 0o600
    before = entry.stat().st_mtime_ns
    assert run(20.0) == "0 name False text"
    assert [path.stat().st_mtime_ns for path in folder.iterdir()] == [before]


def kept(f, *args):
    """Run, with nothing in memory, and say how often XLA compiled."""
    forget()
    before = COUNTER.count
    np.testing.assert_array_equal(f(*args), X + 1)
    return COUNTER.count - before


@pytest.fixture
def plus():
    f = new_program(lambda x: x + 1)
    assert kept(f, X) == 1 and kept(f, X) == 0
    return f


def test_versions_sources_and_processor(plus, monkeypatch):
    for name, value in [("_processor", lambda: "another"), ("_sources", lambda: "others")]:
        monkeypatch.setattr(executable, name, value)
        executable._environment.cache_clear()
        assert kept(plus, X) == 1 and kept(plus, X) == 0
    installed = executable._beside_jax()
    for library in ("jax", "jaxlib", "equinox", "diffrax", "numpy"):
        assert any(name.startswith(f"{library}-") for name in installed)
        other = [name.replace(f"{library}-", f"{library}-9.") for name in installed]
        monkeypatch.setattr(executable, "_beside_jax", lambda other=other: other)
        executable._environment.cache_clear()
        assert kept(plus, X) == 1 and kept(plus, X) == 0
    for name, value in (("XLA_FLAGS", "--xla_cpu_enable_fast_math=false"), ("EQX_ON_ERROR", "nan")):
        monkeypatch.setenv(name, value)
        executable._environment.cache_clear()
        assert kept(plus, X) == 1 and kept(plus, X) == 0
    monkeypatch.undo()
    executable._environment.cache_clear()


def test_code_on_disk_is_told_apart(folder):
    """The same names at the same lines: of the function, of what it calls, of a class among its arguments."""
    source = "def helper(x): return x + 1\ndef f(x, rule): return helper(x) + 0 * rule(x)\n"
    source += "class Rule(Module):\n    def __call__(self, x): return x.sum() - 1"
    for text in (
        source,
        source.replace("x + 1", "x * 0 + 1 + x"),
        source.replace("0 *", "0.0 *"),
        source.replace("- 1", "- 2"),
    ):
        for expected in (1, 0):
            space = {"__name__": "users", "Module": eqx.Module}
            exec(text, space)
            f, rule = program(space["f"]), space["Rule"]()
            assert kept(lambda x, f=f, rule=rule: f(x, rule), X) == expected


def damaged(data, kind):
    if kind == "flipped":
        return data[:500] + bytes([data[500] ^ 1]) + data[501:]
    return {"truncated": data[:-100], "empty": b"", "garbage": b"x" * 1000, "other head": b"y" + data[1:]}[kind]


@pytest.mark.parametrize("kind", ["truncated", "flipped", "empty", "garbage", "other head"])
def test_a_damaged_entry_is_replaced(kind, plus, folder):
    (entry,) = folder.iterdir()
    entry.write_bytes(damaged(entry.read_bytes(), kind))
    assert store.read(entry.stem) is None
    assert kept(plus, X) == 1 and kept(plus, X) == 0


def test_an_entry_that_is_whole_but_wrong_is_replaced(plus, folder):
    """Right by its digest, and no program; or a program of something else, which fails when it is called."""
    (entry,) = folder.iterdir()
    body = store.read(entry.stem)
    assert body is not None
    code, lapack, arrays, outputs = pickle.loads(body)
    for wrong in (("no program", lapack, arrays, outputs), (code, lapack, arrays + 1, outputs)):
        store.write(entry.stem, pickle.dumps(wrong))
        assert kept(plus, X) == 1 and kept(plus, X) == 0


@POSIX
def test_what_others_can_write_is_not_read(plus, folder, tmp_path):
    """A hostile pickle, right in all but who could have written it."""
    (entry,) = folder.iterdir()
    trace = tmp_path / "executed"

    class Hostile:
        def __reduce__(self):
            return Path.touch, (trace,)

    store.write(entry.stem, pickle.dumps((Hostile(), False, 1, None)))
    hostile = entry.read_bytes()
    for change in (lambda: folder.chmod(0o777), lambda: folder.chmod(0o770), lambda: entry.chmod(0o622)):
        entry.write_bytes(hostile)
        entry.chmod(0o600)
        folder.chmod(0o700)
        change()
        assert kept(plus, X) == 1 and not trace.exists()
    # In a folder that is only linked to, and as a link in a folder of ours.
    entry.write_bytes(hostile)
    entry.chmod(0o600)
    folder.chmod(0o777)
    linked = tmp_path / "linked"
    linked.symlink_to(folder)
    os.environ["MEANFORMER_CACHE_DIR"] = str(linked)
    assert kept(plus, X) == 1 and not trace.exists()
    folder.chmod(0o700)
    target = tmp_path / "target"
    entry.rename(target)
    entry.symlink_to(target)
    os.environ["MEANFORMER_CACHE_DIR"] = str(folder)
    assert kept(plus, X) == 1 and not trace.exists()
    # The pickle is hostile indeed.
    store.write(entry.stem, pickle.dumps((Hostile(), False, 1, None)))
    kept(plus, X)
    assert trace.exists()


@POSIX
def test_what_others_own_is_not_read(plus, folder, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert kept(plus, X) == 1 and kept(plus, X) == 1


@POSIX
def test_a_folder_that_cannot_be_written(plus, folder):
    if os.getuid() == 0:
        # Modes do not hold root back; a file in the place of the folder does.
        forget()
        os.environ["MEANFORMER_CACHE_DIR"] = str(next(folder.iterdir()) / "below")
        assert kept(plus, X) == 1 and kept(plus, X) == 1
        return
    folder.chmod(0o500)
    other = new_program(lambda x: x + 0 + 1)
    assert kept(plus, X) == 0 and kept(other, X) == 1 and kept(other, X) == 1
    folder.chmod(0o700)


def test_a_disk_that_is_full(folder, monkeypatch):
    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert kept(new_program(lambda x: x + 1), X) == 1
    assert list(folder.iterdir()) == []  # nothing is left of the attempt


def test_two_processes_at_once(folder):
    command = [sys.executable, "-c", SCRIPT, "1.0"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        out, error = process.communicate()
        assert process.returncode == 0 and error == "" and out.split(maxsplit=1)[1].strip() == "name True text"
    (entry,) = folder.iterdir()
    assert store.read(entry.stem) is not None


def test_the_oldest_are_removed_when_there_are_too_many(folder, monkeypatch):
    for number in range(10):
        store.write(f"{number}", bytes(1000))
        os.utime(folder / f"{number}.program", (number, number))
    monkeypatch.setattr(store, "MOST_BYTES", 8000)
    assert store.read("0") is not None  # used now
    store.write("new", bytes(1000))
    left = {path.stem for path in folder.iterdir()}
    assert {"0", "new", "9"} <= left and not {"1", "2", "3"} & left
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 0.9 * 8000
    store.write("large", bytes(9000))
    assert store.read("large") is None
    assert store.clear() == len(left) and store.entries() == []


def test_nothing_is_kept_when_told_so(folder, monkeypatch):
    for word in ("0", "off", "False"):
        monkeypatch.setenv("MEANFORMER_CACHE", word)
        assert kept(new_program(lambda x: x + 1), X) == 1
        assert not folder.exists() and store.folder() is None


def test_folders_of_the_platforms():
    home = Path.home()
    assert store.folder({}, "linux") == home / ".cache" / "meanformer" / "programs"
    assert store.folder({"XDG_CACHE_HOME": "/here"}, "linux") == Path("/here/meanformer/programs")
    assert store.folder({"XDG_CACHE_HOME": "here"}, "linux") == store.folder({}, "linux")
    assert store.folder({"XDG_CACHE_HOME": "/here"}, "darwin") == home / "Library/Caches/meanformer/programs"
    assert store.folder({"LOCALAPPDATA": "/there"}, "win32") == Path("/there/meanformer/programs")
    assert store.folder({"MEANFORMER_CACHE_DIR": "/mine"}, "linux") == Path("/mine")


def test_other_programs_of_the_user_are_left_alone(folder):
    before = {
        name: os.environ.get(name) for name in ("EQX_ON_ERROR", "JAX_COMPILATION_CACHE_DIR", "TF_CPP_MIN_LOG_LEVEL")
    }
    settings = dict(jax.config.values)
    assert kept(new_program(lambda x: x + 1), X) == 1
    entries = len(store.entries())
    jax.jit(lambda x: x * 3)(X)
    eqx.filter_jit(lambda x: x * 4)(X)
    assert len(store.entries()) == entries == 1
    assert {name: os.environ.get(name) for name in before} == before
    assert dict(jax.config.values) == settings


JAX_CACHE = """
import jax, numpy as np, sys
from meanformer._programs.call import program
f = program(lambda x: (x @ x).sum(0) + np.sin(1.0))
print(f(np.ones((3, 3)))[0])
"""


def test_beside_the_cache_of_jax(tmp_path, folder):
    """A program that JAX had in its own cache lacks some of its code, and is not kept."""
    environment = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "TF_CPP_MIN_LOG_LEVEL": "3",  # on some processors XLA tells of each program in it
    }
    first = run(script=JAX_CACHE, **environment)
    assert store.clear() == 1
    assert run(script=JAX_CACHE, **environment) == first
    assert store.entries() == []


def test_only_one_message_of_xla_is_held_back(capfd, monkeypatch):
    monkeypatch.setattr(executable, "_quiet", [False])
    for _ in range(2):
        with executable._without_noise():
            os.write(
                2, b"E0101 cpu_aot_loader.cc:195] Loading XLA:CPU AOT result. Target machine feature ...\nanother\n"
            )
        os.write(2, b"after\n")
        assert capfd.readouterr().err == "another\nafter\n"
    with executable._without_noise():
        pass
    assert executable._quiet == [True]  # from now on, standard error is left alone


def test_unknown_objects_are_not_kept(folder):
    class Rule:
        level = 1.0

    rule = Rule()
    f = new_program()
    assert f(Pair(X, Y, ""), 1, lambda x: x.sum() > rule.level)[2]
    assert store.entries() == []


def test_programs_in_memory_are_bounded(monkeypatch):
    monkeypatch.setattr(call, "MOST_PROGRAMS", 3)
    f = new_program(lambda x, n: x + n)
    for n in range(5):
        f(X, n)
    assert len(f._compiled) == 3


# The command

COMMAND = """
import sys
from meanformer import cli
sys.argv = ["meanformer", "cache", "--json"]
try:
    cli.main()
except SystemExit as stop:
    assert not stop.code
assert "jax" not in sys.modules
"""


def test_the_command_shows_and_clears(folder, monkeypatch, capsys):
    from meanformer import cli

    def cache(*arguments):
        monkeypatch.setattr(sys, "argv", ["meanformer", "cache", *arguments])
        with contextlib.suppress(SystemExit):
            cli.main()
        return capsys.readouterr().out

    for number in range(3):
        store.write(str(number), bytes(10**6))
    assert json.loads(run(script=COMMAND)) == {
        "folder": str(folder),
        "programs": 3,
        "bytes": sum(path.stat().st_size for path in folder.iterdir()),
        "limit": store.MOST_BYTES,
    }
    assert cache().splitlines() == [str(folder), "3 programs, 3.0 MB of at most 500 MB"]
    assert "0 programs" in cache("--clear") and not list(folder.iterdir())
    monkeypatch.setenv("MEANFORMER_CACHE", "0")
    assert "MEANFORMER_CACHE is off" in cache()
