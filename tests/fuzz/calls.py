"""Calls at random, made from the signatures of the public callables, and what may come of one."""

import collections
import dataclasses
import inspect
import signal
import warnings

import jax
import numpy as np

import meanformer as mf
from fuzz.values import CLOUDS, FIELDS, GAUSSES, GOOD, LAWS, STRANGE, value

# What holds results of others, is there to be subclassed, reads files, or draws.
RESULTS = {
    *("View", "Projections", "Plan", "Outcome", "Ending", "Trajectory", "Fate", "Fates", "EnergyPath", "GaussianGap"),
    *("Stability", "Lipschitz", "WeakResidual", "Checked", "Claim", "MeanFieldRate", "EntropicDistance", "Verdict"),
    *("AttentionSummary", "AttentionPath", "ClusterHistory", "AbstractField", "AbstractAttention", "AbstractSpace"),
    *("AbstractStop", "Journal", "load", "load_table"),
}
CALLABLES = {
    name: getattr(mf, name)
    for name in mf.__all__
    if name not in RESULTS
    and not name.startswith("plot_")
    and not (inspect.isclass(getattr(mf, name)) and issubclass(getattr(mf, name), BaseException))
}
WARNINGS = (mf.NotConvergedWarning, mf.SlowMeanFieldWarning, mf.MassLostWarning, mf.LargeGridWarning)
ERRORS = (mf.InputError, mf.NotGaussianPreserving)
SECONDS = 120
# Always given: by default these take minutes.
SHORT = {"mean_field_rate": ("n", "repeats")}
# What users call on objects, and expressions of such objects.
OBJECTS = {
    "field": (FIELDS, ("__call__", "matrix", "affine")),
    "cloud": (CLOUDS, ("push", "resample", "with_positions")),
    "gaussian": (GAUSSES, ("push", "sample")),
    "density": (["DENSITY", "PLANE", "PLACED_SHARES"], ("centres", "edges", "extended")),
    "law": (LAWS, ("sample",)),
    "run": (["RUN", "NETWORK"], ("at", "clusters")),
    "exact_run": (["GAUSS_RUN"], ("at",)),
}
METHODS = {f"{kind}.{name}": made for kind, (made, names) in OBJECTS.items() for name in names}
# Functions that raise an error of their own, which reaches whoever gave them.
RAISES = {("cloud.push", "float")}

Call = collections.namedtuple(
    "Call", "name arguments on", defaults=(None,)
)  # `on` what it is called, if it is a method


def text_of(call):
    """The call as it would be written."""
    where = f"mf.{call.name}" if call.on is None else f"({call.on}).{call.name.split('.')[1]}"
    return f"{where}({', '.join(f'{name}={text}' for name, text in call.arguments.items())})"


def good(name, parameter):
    """Expressions for a parameter of a callable."""
    return GOOD.get(f"{name}.{parameter}", GOOD.get(parameter))


def callable_of(call):
    """What is called."""
    return CALLABLES[call.name] if call.on is None else getattr(value(call.on), call.name.split(".")[1])


def random_method(rng, name):
    """A call of a method, as `random_call` makes those of functions."""
    return random_call(rng, name, rng.choice(METHODS[name]))


def random_call(rng, name, on=None):
    """A call: what is required and some of the rest, and up to two arguments that are strange."""
    arguments = {}
    for parameter in inspect.signature(callable_of(Call(name, {}, on))).parameters.values():
        needed = parameter.default is inspect.Parameter.empty or parameter.name in SHORT.get(name, ())
        if needed or rng.random() < 0.3:
            arguments[parameter.name] = rng.choice(good(name, parameter.name))
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        if arguments:
            arguments[rng.choice(list(arguments))] = rng.choice(
                [text for text in STRANGE if (name, text) not in RAISES]
            )
    return Call(name, arguments, on)


class TooLong(Exception):
    """A call that does not come back."""


def outcome(call):
    """What comes of a call: "refused", or "result" with the result; anything else is an error."""
    given = {name: value(text) for name, text in call.arguments.items()}

    def late(*_):
        raise TooLong(f"no answer after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for kind in WARNINGS:
                warnings.simplefilter("ignore", kind)
            return "result", given, callable_of(call)(**given)
    except ERRORS as error:
        check_refusal(error)
        return "refused", given, None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check_refusal(error):
    """A refusal says four things, in words of ours."""
    if isinstance(error, mf.InputError):
        assert all((error.what, error.expected, error.remedy)), f"a refusal that says too little: {error}"


def numbers_of(thing, path="result"):
    """All arrays and numbers in a result, with where they are."""
    if isinstance(thing, (bool, str, int)) or thing is None or callable(thing):
        return
    if isinstance(thing, (float, complex, np.ndarray, np.generic, jax.Array)):
        yield path, thing
    elif isinstance(thing, dict):
        for key, part in thing.items():
            yield from numbers_of(part, f"{path}[{key!r}]")
    elif isinstance(thing, tuple) and hasattr(thing, "_fields"):
        for name in thing._fields:
            yield from numbers_of(getattr(thing, name), f"{path}.{name}")
    elif isinstance(thing, (list, tuple)):
        for index, part in enumerate(thing):
            yield from numbers_of(part, f"{path}[{index}]")
    elif dataclasses.is_dataclass(thing):
        for field in dataclasses.fields(thing):
            yield from numbers_of(getattr(thing, field.name, None), f"{path}.{field.name}")


# Where a number may be missing or infinite, as its documentation says.
MISSING = {
    "average_cosine": "fewer than two tokens with a direction",
    "ot_energy": "iterations of Sinkhorn that stall",
    "attention_summary": "tokens of zero weight",
    "weak_residual": "quadrature: too few save times",
    "check": "measured: nothing was measured",
    "mean_field_rate": "kernel: not known; no scatter, no rate",
    "gaussian_gap": "kernel: no softmax",
    "collapse_limit": "exponent: one time only",
    "fates": "limits and rates of other fates",
    "energy_along": "Sinkhorn that stalled",
}
INFINITE = {
    *("e0_energy", "softmax_blowup_time", "l2_blowup_time", "blowup_bounds", "conditional_wasserstein", "euler_bound"),
    *("stability_bound", "support_bound", "trace_bound", "lipschitz_constants", "bures_wasserstein", "sphere_energy"),
    *("polytope_limit", "paranormal_limit", "mean_field_rate", "gaussian_gap", "energy_along", "fates"),
    *("one_dimensional", "check", "softmax_energy", "l2_energy", "gaussian_energy", "ot_energy"),
}
# Squares, and errors of what was not solved, may be beyond the range.
SQUARES = ("covariance", "marginal_error")


def check_result(call, result):
    """A result has the type that its annotation says, and its numbers are numbers."""
    function = callable_of(call)
    expected = function if inspect.isclass(function) else inspect.signature(function).return_annotation
    if inspect.isclass(expected) and expected.__module__.startswith(("meanformer", "builtins")):
        assert isinstance(result, expected), f"a {type(result).__name__} instead of a {expected.__name__}"
    for path, number in numbers_of(result):
        array = np.asarray(number)
        if array.dtype.kind not in "fc":
            continue
        if call.name not in MISSING and ".fate" not in path:  # of an undecided fate much is not known
            assert not np.isnan(array).any(), f"{path} is not a number: {array}"
        if call.name not in INFINITE and not any(word in path for word in SQUARES):
            assert not np.isinf(array).any(), f"{path} is infinite: {array}"
