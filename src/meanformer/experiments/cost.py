"""What an experiment will take, guessed before it runs, and its plan in words."""

import dataclasses
import math
from typing import Any

from ..reduce.plan import PAIR
from .config import Experiment
from .schema.attention import Head
from .schema.measure import Density, Drawn, Gaussian, Points
from .schema.run import LogTimes
from .toml import dotted

# Seconds to compile a run of a kind, once, as measured on one core; other kinds are the sums of their parts.
COMPILING = {"sinkhorn": 15.0, "hardmax": 2.0, "linear": 2.0, "affine": 1.0, "perceptron": 1.0}
USUAL_COMPILING = 6.0
# Evaluations of the field in a step of the usual solver, and how many fields one Sinkhorn problem costs.
STAGES, SWEEPS = 6, 60.0
# Steps: at the least, and for each unit of time.
FEWEST_STEPS, STEPS = 20, 8.0
# Seconds of a step, however few the tokens; and for a Gaussian, which runs some hundred steps to its fate.
STEP, GAUSSIAN_STEP, STEPS_TO_FATE = 1e-3, 3e-3, 300
MOST_STEPS = 3000
# Seconds for a figure, for those that fit, for a film, and to check the theory.
FIGURE, FITTING, FILM, CHECK = 1.0, 6.0, 8.0, 2.0


@dataclasses.dataclass(frozen=True)
class Cost:
    """Seconds and bytes, roughly (within a factor of three or so), and in words."""

    seconds: float
    bytes: float
    words: str


def estimate(experiment: Experiment) -> Cost:
    """The cost of running an experiment, from its sizes alone: nothing is built, and files are not opened."""
    if experiment.cases:
        cases = [case for _, case in experiment.expanded()]
        programs = {_program(case): _single(case)[0] for case in cases}  # what is alike is compiled once
        seconds = sum(programs.values()) + sum(_single(case)[1] + _looking(case) for case in cases) + FIGURE
        memory = max(_single(case)[2] for case in cases)
    elif experiment.sweep is not None:
        axes = experiment.axes()
        ends = [experiment.task({key: values[place] for key, values in axes.items()}) for place in (0, -1)]
        (compiling, first, memory), (again, last, more) = map(_single, ends)
        programs = math.prod(len(values) for key, values in axes.items() if _recompiles(key))
        seconds = programs * max(compiling, again) + experiment.sweep.count() * (first + last) / 2 + FIGURE
        memory = max(memory, more)
    else:
        compiling, running, memory = _single(experiment)
        seconds = compiling + running + _looking(experiment)
    return Cost(seconds, memory, f"about {duration(seconds)}, {_size(memory)} of states (a rough guess)")


def plan_text(experiment: Experiment) -> str:
    """The plan of an experiment, defaults filled in, as `--dry-run` prints it."""
    lines = [experiment.title or experiment.source.name]
    if experiment.cases:
        lines += [f"{len(experiment.cases)} cases, seed {experiment.seed}:"]
        for name, case in experiment.expanded():
            lines += ["", f"  {name}" + (f": {case.title}" if case.title else "")]
            lines += [f"    {line}" for line in _plan(case)]
    elif experiment.sweep is not None:
        axes = experiment.axes()
        lines += [f"a sweep of {experiment.sweep.count():,} runs, over"]
        lines += [f"  {key}: {_values(values)}" for key, values in axes.items()]
        lines += ["each of them, here the first:"]
        first = experiment.task({key: values[0] for key, values in axes.items()})
        lines += [f"  {line}" for line in _plan(first, experiment.sweep.numbers, check=False)]
    else:
        lines += [f"  {line}" for line in _plan(experiment)]
    draw = experiment.figures.draw
    figures = "those that fit" if draw is None else ", ".join(draw) or "none"
    animated = experiment.figures.animation or any(case.figures.animation for _, case in experiment.expanded())
    lines += ["", f"figures    {figures}" + (", an animation" if animated else "")]
    lines += [f"cost       {estimate(experiment).words}"]
    return "\n".join(lines)


def _single(experiment: Experiment) -> tuple[float, float, float]:
    """Seconds to compile, seconds to run, bytes."""
    n, d = _tokens(experiment)
    compiling, work = _field(experiment.attention)
    save = experiment.save
    kept = n if save.sample is None else min(n, save.sample)
    states = experiment.states()
    if isinstance(experiment.measure, Gaussian):
        endless = experiment.flow is not None and experiment.flow.t1 == math.inf
        steps = STEPS_TO_FATE if endless else _steps(experiment)
        return USUAL_COMPILING, steps * GAUSSIAN_STEP, 8.0 * (states + 40) * d * (d + 1)
    accuracy = getattr(experiment.flow or experiment.layers, "accuracy", None)
    pairs = n * min(n, 3000) if accuracy else n * n  # fast sums cost about as much as exact ones with 3,000 tokens
    steps = _steps(experiment)
    stages = 1 if experiment.layers is not None else STAGES
    running = steps * (STEP + stages * work * pairs * PAIR * max(1.0, d / 8))
    return compiling, running, 8.0 * d * (2.5 * states * kept + 32 * n)


def _tokens(experiment: Experiment) -> tuple[int, int]:
    """How many tokens (or cells), of which dimension; a file of points counts as a thousand."""
    measure = experiment.measure
    assert measure is not None
    d = measure.dimension()
    if isinstance(measure, Drawn):
        return measure.n, d
    if isinstance(measure, Points):
        return (len(measure.points) if isinstance(measure.points, list) else 1000), d
    if isinstance(measure, Density):
        cells = measure.cells if measure.cells is not None else 200 if d == 1 else 64
        return (math.prod(cells) if isinstance(cells, list) else cells**d), d
    return d, d


def _program(experiment: Experiment) -> str:
    """What a compiled run depends on."""
    told = experiment.flow.model_dump(include={"frame", "space", "solver"}) if experiment.flow else "layers"
    return f"{_tokens(experiment)} {_kinds(experiment.attention)} {told}"


def _kinds(table: Any) -> str:
    return f"{table.kind}({', '.join(map(_kinds, _inner(table)))})"


def _looking(experiment: Experiment) -> float:
    """Seconds for what follows a run: checks, figures, a film."""
    draw = experiment.figures.draw
    drawing = FITTING if draw is None else FIGURE * len(draw)
    return drawing + FILM * experiment.figures.animation + CHECK * experiment.diagnostics.check


def _recompiles(key: str) -> bool:
    """Whether each value of a swept key is compiled anew: sizes and words, but not numbers."""
    return key.rpartition(".")[2] in ("n", "d", "kind", "depth", "cells", "solver", "kernel", "times")


def _field(table: Any) -> tuple[float, float]:
    """Seconds to compile a field, and its sums over pairs of tokens."""
    inner = _inner(table)
    if not inner:
        kind: str = table.kind
        work = SWEEPS if kind == "sinkhorn" else 1.0 if isinstance(table, Head) else 0.0
        return COMPILING.get(kind, USUAL_COMPILING), work
    parts = [_field(part) for part in inner]
    masked_sinkhorn = 100.0 if table.kind == "causal" and parts[0][1] >= SWEEPS else 1.0
    return max(c for c, _ in parts) + 0.5 * len(parts), masked_sinkhorn * sum(w for _, w in parts)


def _inner(table: Any) -> list[Any]:
    """The tables of which a table is made."""
    parts = [getattr(table, name, None) or [] for name in ("of", "heads", "terms", "fields")]
    return [inner for part in parts for inner in (part if isinstance(part, list) else [part])]


def _steps(experiment: Experiment) -> float:
    if experiment.layers is not None:
        return float(experiment.layers.depth)
    flow = experiment.flow
    assert flow is not None
    span = flow.t1 - flow.t0
    if flow.step is not None:
        return span / flow.step
    if isinstance(experiment.measure, Density):
        return float(_tokens(experiment)[0] ** (1 / experiment.measure.dimension()))  # a cell in each step
    return float(min(FEWEST_STEPS + STEPS * span, flow.max_steps or MOST_STEPS, MOST_STEPS))


def _plan(experiment: Experiment, numbers: list[str] | None = None, check: bool = True) -> list[str]:
    """A single run, in lines."""
    lines = [f"attention  {_told(experiment.attention)}", f"measure    {_told(experiment.measure)}"]
    n, d = _tokens(experiment)
    if isinstance(experiment.measure, Drawn):
        seed = experiment.seed if experiment.measure.seed is None else experiment.measure.seed
        lines[-1] += f": {n:,} tokens of dimension {d}, from seed {seed}"
    if experiment.layers is not None:
        layers = experiment.layers
        step = f"step {layers.step:g}" if layers.step else f"step 1/{layers.depth}"
        lines += [f"layers     {layers.depth}, {step}" + ", each with its own draws" * layers.redraw]
    else:
        lines += _told_flow(experiment)
    lines += [f"saved      {_told_times(experiment)}"]
    numbers = numbers or experiment.diagnostics.numbers
    checked = ", and the claims of the theory are checked" * (check and experiment.diagnostics.check)
    lines += [f"numbers    {'all that apply' if numbers is None else ', '.join(numbers)}{checked}"]
    return lines


def _told_flow(experiment: Experiment) -> list[str]:
    flow = experiment.flow
    assert flow is not None
    end = "until its fate is known" if flow.t1 == math.inf else f"to t = {flow.t1:g}"
    frame = ", in the frame z = exp(-tV) x" if flow.frame else ""
    space = ", on the sphere" if flow.space else ""
    lines = [f"flow       from t = {flow.t0:g} {end}{frame}{space}"]
    if isinstance(experiment.measure, Density):
        return [*lines, "solver     finite volumes, steps from the cells"]
    gaussian = isinstance(experiment.measure, Gaussian)
    solver = flow.solver or ("rodas5p" if gaussian else "tsit5")
    if flow.step is not None:
        lines += [f"solver     {solver}, step {flow.step:g}"]
    else:
        rtol = flow.rtol or (1e-8 if gaussian else max(1e-6, 10 * (flow.accuracy or 0)))
        if experiment.measure is not None and getattr(experiment.measure, "dtype", None) == "float32":
            rtol = flow.rtol or 1e-4
        lines += [f"solver     {solver}, rtol {rtol:g}" + (f", atol {flow.atol:g}" if flow.atol else "")]
    lines += [f"sums       {'exact' if flow.accuracy is None else f'to an accuracy of {flow.accuracy:g}'}"]
    if flow.stop:
        lines += ["stops      " + ", ".join(dotted(tuple(rule.model_dump())) for rule in flow.stop)]
    return lines


def _told_times(experiment: Experiment) -> str:
    save = experiment.save
    count = experiment.states()
    text = f"{count} states" + (", spaced in the logarithm of time" * isinstance(save.times, LogTimes))
    text += f" of {save.sample:,} tokens, drawn at random" if save.sample is not None else ""
    return f"{text}, written every {save.every:g} s"


def _told(table: Any) -> str:
    """A table in one line: its kind, what it is made of, and its options."""
    inner = _inner(table)
    given = table.model_dump(
        exclude={"kind", "of", "heads", "terms", "fields", "n", "d", "seed"}, exclude_defaults=True
    )
    options = ", ".join(f"{name} = {_short(value)}" for name, value in given.items())
    text = table.kind + (f" ({'; '.join(_told(part) for part in inner)})" if inner else "")
    return f"{text}, {options}" if options else text


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_short(part)}" for key, part in value.items() if part is not None) + "}"
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _values(values: list[Any]) -> str:
    shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    listed = ", ".join(shown) if len(shown) <= 6 else f"{shown[0]}, {shown[1]}, ..., {shown[-1]}"
    return f"{len(values)} values: {listed}" if len(values) > 1 else listed


def duration(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _size(nbytes: float) -> str:
    if nbytes < 1e6:
        return "less than 1 MB"
    return f"{nbytes / 1e6:.0f} MB" if nbytes < 1e9 else f"{nbytes / 1e9:.2g} GB"
