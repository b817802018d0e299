"""The figures of an experiment: those that fit the run, as files with captions."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import meanformer as mf

from .. import _checks as checks
from ..plots import style
from ..plots.export import Keep, keep_figure
from ..plots.fates import number
from ..plots.film import animation_suffix
from ..plots.matrices import MOST_ROWS
from ..plots.panels import Panel, panel_figure
from ..plots.sweeps import DRAW, is_categorical, plot_curves, plot_heatmap
from ..spaces import Sphere
from .names import FIGURES
from .pictures import PICTURES, new_axes, token_options

Drawn = dict[str, str]
"""A figure in a folder: its name, its file (relative to the folder), its caption."""
Say = Callable[[str], None]

# By default a sweep shows these numbers, if they vary; and no more pictures than this.
TELLING = (
    "fate",
    "rank",
    "clusters",
    "outcome",
    "effective_rank",
    "participation_ratio",
    "stable_rank",
    "radius",
    "trace",
    "growth",
    "fate_time",
    "mean_norm",
    "average_cosine",
    "isoscore",
    "mass_lost",
)
MOST_PICTURES = 6


def draw(
    run: mf.Trajectory,
    names: Sequence[str] | None,
    keep: Keep,
    options: Mapping[str, Any] | None = None,
    say: Say | None = None,
) -> list[Drawn]:
    """Draw figures of a run.

    **Arguments:**

    - `names`: words of `FIGURES`; None for those that fit the run. What does not fit is left out, and `say` tells why.
    - `keep`: takes the name of each file, `figures/...`, and its bytes: that of a run folder is `folder.put`.
    - `options`: "colour" ("clusters", "positions", a colour, {"sectors": 5}, or a value per token), "coordinates",
      "view", "animation" (a film too), and "checked", what `mf.check(run)` returned, for "claims".
    - `say`: is told what is being drawn.

    **Returns:** for each figure its "name", "file" and "caption".
    """
    options, say = dict(options or {}), say or (lambda words: None)
    wanted = fitting(run, options) if names is None else [checks.one_of(name, "this figure", FIGURES) for name in names]
    found = []
    for name in wanted:
        if name not in PICTURES:
            continue  # of cases and sweeps
        why = _unfit(name, run)
        if why:
            say(f"no figure {name!r}: {why}")
            continue
        say(f"drawing {name}")
        try:
            with style.style():
                figure, caption = PICTURES[name](run, options)
        except checks.InputError as refusal:  # e.g. a field without an attention matrix
            say(f"no figure {name!r}: {refusal.what}")
            continue
        found.append(keep_figure(figure, keep, name, caption))
    if options.get("animation"):
        say("drawing the film")
        found.append(draw_film(run, keep, options))
    return found


def fitting(run: mf.Trajectory, options: Mapping[str, Any] | None = None) -> list[str]:
    """The figures that are drawn by default."""
    mu = run.system.mu
    if isinstance(mu, mf.Gaussian):
        return ["paths", "spectrum", *(["disc", "cone"] if mu.d == 2 else [])]
    if isinstance(mu, mf.Density):
        return ["paths"]
    names = ["paths", "clusters", "radius"] if mu.d <= 3 else ["clusters", "radius", "ranks"]
    names += ["spectrum"] if mu.d > 1 else []
    names += ["attention"] if mu.n <= MOST_ROWS else []
    names += ["claims"] if (options or {}).get("checked") is not None else []
    return [name for name in names if not _unfit(name, run)]


def draw_film(run: mf.Trajectory, keep: Keep, options: Mapping[str, Any] | None = None) -> Drawn:
    """A film of the run, as MP4 if it can be written here, else as GIF."""
    given = token_options(run, options or {})
    file = f"animation{animation_suffix()}"
    with tempfile.TemporaryDirectory() as scratch:
        keep(f"figures/{file}", run.animate(Path(scratch) / file, progress=False, **given).read_bytes())
    caption = f"The run from $t={number(float(run.times[0]))}$ to $t={number(float(run.times[-1]))}$."
    return {"name": "animation", "file": f"figures/{file}", "caption": caption}


def draw_panels(
    cases: Sequence[Mapping[str, Any]], keep: Keep, heading: str = "", footer: str = "", columns: int = 4
) -> Drawn:
    """All cases side by side.

    **Arguments:** `cases`, each with "run", "title", and if wanted "formula", "caption", "options" (those of `draw`);
    `heading` above and `footer` below. In the plane the first tokens of the first case come first.
    """
    panels = []
    for case in cases:
        run, options = case["run"], case.get("options") or {}
        given = token_options(run, options) if isinstance(run.system.mu, mf.PointCloud) else {}
        circle = isinstance(getattr(run.system, "space", None), Sphere) and run.system.mu.d == 2
        title, formula, caption = (str(case.get(key) or "") for key in ("title", "formula", "caption"))
        colour, view = given.get("colour"), given.get("view")
        panels.append(Panel(run, title, formula, caption, colour, circle=circle, view=view))
    first = panels[0].run.system.mu
    if isinstance(first, mf.PointCloud) and first.d == 2 and len(panels) > 1:
        colour = panels[0].colour
        start = Panel(panels[0].run, f"{first.n} tokens", r"$\mu_0$ in the plane", "$t=0$", colour, still=True)
        panels.insert(0, start)
    figure = panel_figure(panels, heading, footer, min(columns, len(panels)))
    what = "Lines are the paths of the tokens, stronger towards the end; dots their final places; grey dots the start."
    return keep_figure(figure, keep, "panels", f"{len(cases)} cases side by side. {what}")


def draw_sweep(
    table: Any, names: Sequence[str] | None, keep: Keep, numbers: Sequence[str] | None = None, say: Say | None = None
) -> list[Drawn]:
    """Draw the numbers of a sweep: heat maps over two axes, curves over one, histograms over draws only.

    **Arguments:** `table`, an `xarray.Dataset`; `names`, "heatmap" or "curves", by default what fits; `numbers`, which
    of its variables, by default those that tell something. Of more than two axes the last two are shown, the others at
    their middle values.
    """
    say = say or (lambda words: None)
    axes = [dim for dim in table.dims if dim != DRAW and table.sizes[dim] > 1]
    single = {dim: 0 for dim in table.dims if dim != DRAW and table.sizes[dim] == 1}
    fixed = {dim: table.sizes[dim] // 2 for dim in axes[:-2]}
    table, axes = table.isel({**single, **fixed}), axes[-2:]
    kind = "heatmap" if len(axes) == 2 and (names is None or "heatmap" in names) else "curves"
    if names is not None and kind not in names and len(axes) < 2:
        say(f"no heat map: the sweep has {len(axes)} axis")
    chosen = _telling(table) if numbers is None else [name for name in numbers if name in table]
    found = []
    for name in chosen:
        say(f"drawing {name}")
        values = table[name]
        with style.style():
            ax = new_axes((6.8, 4.6))
            (plot_heatmap if kind == "heatmap" else plot_curves)(values, ax)
        at = "".join(f", at {dim} = {table[dim].item():.4g}" for dim in fixed)
        found.append(keep_figure(ax.figure, keep, f"{kind}-{name}", _sweep_words(values) + at + "."))
    return found


def _telling(table: Any) -> list[str]:
    """The numbers that vary and tell something, the most telling first."""
    varying = [name for name in (*TELLING, *table) if name in table and len(set(map(str, table[name].values.flat))) > 1]
    cost = ("seconds", "steps", "rejected", "bound", "time")
    return [name for name in dict.fromkeys(varying) if name not in cost][:MOST_PICTURES]


def _sweep_words(values: Any) -> str:
    over = " and ".join(f"`{dim}`" for dim in values.dims if dim != DRAW)
    draws = f", {values.sizes[DRAW]} draws each" if DRAW in values.dims and over else ""
    draws = draws if over else f" {values.sizes[DRAW]} draws" if DRAW in values.dims else ""
    flat = values.values.ravel()
    if is_categorical(flat):
        words, counts = np.unique([str(v) for v in flat.tolist()], return_counts=True)
        most = np.argsort(-counts)[:4]
        spread = ", ".join(f"{str(words[k]).replace('_', ' ')} in {counts[k]}" for k in most) + f" of {flat.size} runs"
    else:
        finite = np.asarray(flat, np.float64)[np.isfinite(np.asarray(flat, np.float64))]
        spread = f"from ${number(finite.min())}$ to ${number(finite.max())}$" if finite.size else "no numbers"
    name = str(values.name).replace("_", " ")
    return f"{name[0].upper()}{name[1:]} over {over or ''}{draws}: {spread}".replace("over  ", "over ")


def _unfit(name: str, run: mf.Trajectory) -> str:
    """Why a figure does not fit a run; empty if it does."""
    mu = run.system.mu
    tokens = isinstance(mu, mf.PointCloud)
    if name in ("clusters", "radius", "attention") and not tokens:
        return f"it is of tokens, and this is a run of a {type(mu).__name__}"
    if name in ("cone", "disc") and not (isinstance(mu, mf.Gaussian) and mu.d == 2):
        return "it is of a Gaussian in the plane"
    if name in ("spectrum", "ranks") and isinstance(mu, mf.Density) and mu.positions is not None:
        return "a density with positions has a covariance for each of them"
    if name in ("attention", "claims") and run.whole is not None:
        return "the run kept a sample of its tokens"
    return ""
