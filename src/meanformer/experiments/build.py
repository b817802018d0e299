"""From an experiment to what the library runs: a field, a measure, and the options of `mf.flow` or `mf.layers`.

Building checks: shapes, files, times and solvers are refused here with the place in the file, before anything is
computed or written.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp

import meanformer as mf

from .. import _checks as checks
from .._types import cast
from ..attention.schedule import check_velocity
from ..flows.densities import DensitySystem, refuse_for_densities
from ..flows.endless import checked_endless
from ..flows.gaussians import GaussianSystem
from ..flows.observe import checked_observer
from ..flows.planning import STATES_IN_A_STEP, checked_plan
from ..flows.save import resolve_save
from ..flows.setup import checked_control, checked_system, refuse_for_gaussians
from ..flows.solvers import checked_solver
from ..flows.stop import resolve_stop
from ..spaces import resolve_space
from .config import DRAW, Experiment, points_to_check
from .schema.base import Site

MOST_BUILT = 64
"""Of a sweep, at most so many runs are built in advance."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is run: `getattr(mf, verb)(field, measure, **options)`."""

    verb: str
    field: Any
    measure: Any
    options: dict[str, Any]

    def run(self, **more: Any) -> mf.Trajectory:
        """Run it, with `more` options, e.g. `progress=False`."""
        return getattr(mf, self.verb)(self.field, self.measure, **self.options, **more)


Begun = Callable[[str, Any, dict[str, Any]], None]
"""Hears the verb, the measure and the options of a problem."""


def build(experiment: Experiment, base: Path | None = None, begun: Begun = lambda *_: None) -> Problem:
    """The problem that a single experiment means (one of its cases or tasks, if it has several), checked.

    `base` is the folder of the files that it names, by default that of the experiment file. The same experiment
    gives the same bits. `begun` hears of the start before there is a field, which may still be refused.
    """
    if experiment.cases or experiment.attention is None or experiment.measure is None:
        checks.refuse(
            "an experiment with cases is built case by case",
            got=f"{len(experiment.cases)} cases",
            expected="a single experiment",
            remedy="for name, case in experiment.expanded(): build(case)",
        )
    site = Site(experiment.source, experiment.folder if base is None else Path(base), experiment.seed)
    measure = _measure(experiment.measure, site)
    site = dataclasses.replace(site, d=measure.d)
    verb, table = ("flow", experiment.flow) if experiment.layers is None else ("layers", experiment.layers)
    assert table is not None
    with site.refusing("save", "times"):
        _check_words(experiment.save.times, verb)
        options = table.options(experiment.save)
    begun(verb, measure, options)
    if experiment.layers is None:
        field: Any = experiment.attention.build(site.at("attention"))
    else:
        numbers = range(experiment.layers.depth) if experiment.layers.redraw else ()
        _check_depth(experiment.layers.depth, measure, site)
        drawn = [dataclasses.replace(site, draw=("layer", number)) for number in numbers]
        fields = [experiment.attention.build(layer.at("attention")) for layer in drawn or [site]]
        field = fields if drawn else fields[0]
    dtype = getattr(experiment.measure, "dtype", None)
    field = field if dtype is None else cast(field, jnp.dtype(dtype))
    problem = Problem(verb, field, measure, options)
    (_check_flow if verb == "flow" else _check_layers)(problem, site)
    experiment.figures.check(site.at("figures"), measure.d)
    return problem


def check(experiment: Experiment, base: Path | None = None) -> None:
    """Build all cases of an experiment; of a sweep, the runs at the ends of its axes and each value on its own."""
    for _, case in experiment.expanded():
        build(case, base)
    if experiment.sweep is not None:
        axes = {key: values[:1] if key == DRAW else values for key, values in experiment.axes().items()}
        points = points_to_check(axes, all_below=0)
        step = -(-len(points) // MOST_BUILT)
        for values in points[::step]:
            build(experiment.task(values), base)
    elif not experiment.cases:
        build(experiment, base)


def _measure(table: Any, site: Site) -> Any:
    d = table.dimension()
    with site.refusing("measure"):
        checks.fits_in_memory(f"a matrix for tokens of dimension {d}", 32 * d**2, "lower the dimension d")
        return table.build(dataclasses.replace(site.at("measure"), d=d))


def _check_words(times: Any, verb: str) -> None:
    wrong = times is not None and (isinstance(times, str) == (verb == "flow"))
    if wrong:
        checks.refuse(
            "layers save all states or the final one" if verb == "layers" else "a flow saves at times",
            got=f"times = {times!r}",
            expected='"all" or "final"' if verb == "layers" else "a number of times, or times",
            remedy="leave times out for the default",
        )


def _check_depth(depth: int, measure: Any, site: Site) -> None:
    with site.refusing("layers", "depth"):
        checks.fits_in_memory(f"a depth of {depth} layers", 20 * 8 * depth * measure.d, "fewer layers")


def _check_flow(problem: Problem, site: Site) -> None:
    """What `mf.flow` refuses, refused now."""
    o = {"t0": 0.0, **problem.options}
    get = o.get
    field, measure = problem.field, problem.measure
    with site.refusing("attention"):
        check_velocity(field, measure, jnp.asarray(o["t0"], float))
    with site.refusing("flow"):
        system, t0, t1 = checked_system(field, measure, o["t0"], o["t1"], get("space"), get("frame"))
        unused = {name: get(name) for name in ("solver", "atol", "step", "accuracy", "sample")}
        if isinstance(system, GaussianSystem) and float(t1) == float("inf"):
            checked_endless(system, t0, get("save"), get("stop"), unused)
            checks.relative_tolerance(o.get("rtol", 1e-8), jnp.zeros(()).dtype, "1e-8")
            return
        if isinstance(system, DensitySystem):
            refuse_for_densities(**unused, rtol=get("rtol"), space=get("space"), frame=get("frame"))
            kept = system.state_bytes
        else:
            solver = checked_solver(get("solver", "tsit5"))
            dtype = measure.points.dtype if isinstance(measure, mf.PointCloud) else measure.mean.dtype
            checked_control(system, solver, get("rtol"), get("atol"), get("step"), t0, dtype, get("accuracy"))
            checked_plan(get("accuracy"), system, False)
            with site.refusing("save", "sample"):
                kept = checked_observer(get("sample"), None, system, t0).bytes(system)
        resolve_stop(get("stop"), measure, t0)
    with site.refusing("save", "times"):
        times = resolve_save(get("save"), t0, t1, kept)
    with site.refusing("measure"):
        needed = STATES_IN_A_STEP * system.state_bytes + 2.5 * len(times) * kept
        checks.fits_in_memory(f"a run of {system.summary()}", needed, "fewer tokens, or [save] sample = 1000")


def _check_layers(problem: Problem, site: Site) -> None:
    """What `mf.layers` refuses, refused now."""
    o, measure = problem.options, problem.measure
    fields = problem.field if isinstance(problem.field, list) else [problem.field]
    with site.refusing("layers"):
        if isinstance(measure, mf.Density):
            checks.refuse(
                "layers move tokens and Gaussians",
                got='kind = "density"',
                expected="tokens, or a Gaussian",
                remedy="use [flow], or tokens from the same law",
            )
        if isinstance(measure, mf.Gaussian):
            refuse_for_gaussians(o.get("space"), None)
    with site.refusing("attention"):
        check_velocity(fields[0], measure, jnp.zeros(()))
    with site.refusing("layers"):
        if isinstance(measure, mf.PointCloud):
            resolve_space(o.get("space"), measure.points)
        system = checked_system(fields[0], measure, 0.0, 1.0, o.get("space"), None)[0]
        checked_plan(o.get("accuracy"), system, False)
        with site.refusing("save", "sample"):
            kept = checked_observer(o.get("sample"), None, system, jnp.zeros(())).bytes(system)
        depth = len(fields) if isinstance(problem.field, list) else o["depth"]
        states = 2 if o.get("save") == "final" else depth + 1
        checks.fits_in_memory(f"saving {states} states", 2.5 * states * kept, '[save] times = "final", or a sample')
