r"""The tour: the same tokens through every kind of attention, side by side.

Each kind gets weights, a horizon and a frame in which it shows what is typical of it; the captions say what.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np

import meanformer as mf

from .. import _checks as checks
from ..outcome import Ending
from ..plots.panels import Panel, panel_figure
from ..plots.tokens import animate_run

PETALS = 5


@dataclasses.dataclass(frozen=True)
class Scene:
    """One kind of attention, and how to look at it. `options` are those of `mf.flow`."""

    name: str
    title: str
    formula: str
    caption: str
    field: mf.AbstractField
    t1: float
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    prepare: Callable[[mf.PointCloud], mf.PointCloud] = lambda tokens: tokens
    colour_by_position: bool = False
    view: float | None = None  # half width of the picture; by default it holds all paths


@dataclasses.dataclass(frozen=True)
class Row:
    """The numbers of one kind. `radius` and `bound` are those of the tokens themselves; `clusters` and
    `effective_rank` those of the picture, in the frame of the run.
    """

    name: str
    radius: float
    bound: float | None
    clusters: int
    effective_rank: float
    steps: int
    seconds: float
    outcome: str
    time: float


@dataclasses.dataclass(frozen=True)
class Tour:
    """What the tour found, and the files that it wrote."""

    n: int
    seed: int
    seconds: float
    rows: list[Row]
    files: list[str]

    def as_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        return {"experiment": "tour", "version": mf.__version__, **dataclasses.asdict(self)}


def rotation(angle: float) -> Any:
    """The rotation of the plane by `angle`."""
    return jnp.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def petal_tokens(n: int, seed: int) -> mf.PointCloud:
    """`n` tokens around 0 in five petals, with mean exactly 0."""
    angles = np.pi / 2 + 2 * np.pi * np.arange(PETALS) / PETALS
    turns = np.stack([np.asarray(rotation(a)) for a in angles])
    covs = turns @ np.diag([0.10, 0.02]) @ turns.transpose(0, 2, 1)
    tokens = mf.gaussian_mixture(means=turns[:, :, 0], covs=covs).sample(n, key=jr.key(seed))
    return tokens.push(lambda x: x - tokens.mean[None])


def petals(tokens: mf.PointCloud) -> np.ndarray:
    """The petal of each token: the fifth of the plane in which it lies."""
    x, y = np.asarray(tokens.points, float).T
    return np.round((np.arctan2(y, x) - np.pi / 2) / (2 * np.pi / PETALS)).astype(int) % PETALS


def scenes() -> list[Scene]:
    """The kinds, in the order of the picture."""
    I = jnp.eye(2)
    e1, e2 = I[:1], I[1:]
    rescaled = {"frame": mf.Rescaled()}
    u = (rotation(0.45) @ e1.T).T  # a direction, as a row
    two_heads = mf.MultiHead([mf.Softmax(2 * e1, 2 * e1, e1.T @ e1), mf.Softmax(2 * e2, 2 * e2, e2.T @ e2)])
    return [
        Scene(
            "softmax",
            "Softmax",
            r"$p\propto e^{Qx\cdot Ky}$,  $Q=K=V=I$",
            "clusters at the corners of a polygon\n" r"$z=e^{-tV}x$,  $t=6$",
            mf.Softmax(I, I, I),
            6.0,
            rescaled,
        ),
        Scene(
            "softmax-leading",
            "Softmax, one leading direction",
            r"$p\propto e^{Qx\cdot Ky}$,  $Q=K=I$,  $V=uu^\top$",
            "tokens gather on parallel lines, across $u$\n" r"$z=e^{-tV}x$,  $t=8$",
            mf.Softmax(I, I, u.T @ u),
            8.0,
            rescaled,
        ),
        Scene(
            "l2",
            "L2",
            r"$p\propto e^{-|Qx-Ky|^2}$,  $Q=K=V=I$",
            "each token follows its neighbours\n" r"$z=e^{-tV}x$,  $t=6$",
            mf.L2(I, I, I),
            6.0,
            rescaled,
        ),
        Scene(
            "sinkhorn",
            "Sinkhorn",
            r"$p=e^{f(x)+g(y)+Qx\cdot Ky}$,  $K=-Q=-2u^\top$",
            "collapse to rank one; the mean stands still\n" r"$t=12$",
            mf.Sinkhorn(2 * u, -2 * u, I, tol=1e-8),
            12.0,
        ),
        Scene(
            "sigmoid",
            "Sigmoid",
            r"$p=\sigma(Qx\cdot Ky)$,  $Q=K=3I$,  $V/2$ a rotation",
            "weights between 0 and 1, not normalised\n" r"$t=4$",
            mf.Sigmoid(3 * I, 3 * I, 2 * rotation(1.0)),
            4.0,
        ),
        Scene(
            "linear",
            "Linear",
            r"$p=Qx\cdot Ky$,  $Q=K=I$,  $V$ a rotation",
            "one linear map moves all: petals stay petals\n" r"$t=2$",
            mf.Linear(I, I, rotation(1.4)),
            2.0,
        ),
        Scene(
            "unnormalised",
            "Unnormalised",
            r"$p=e^{Qx\cdot Ky}$,  $Q=K=V=I$",
            "the farthest token runs away,\nto infinity in finite time",
            mf.Unnormalised(I, I, I),
            4.0,
            view=2.7,
        ),
        Scene(
            "hardmax",
            "Hardmax",
            r"$p=1$ at $\mathrm{argmax}_y\,Qx\cdot Ky$,  $Q$ a rotation",
            "corners chase corners, tokens follow\n" r"$z=e^{-tV}x$,  $t=4$",
            mf.Hardmax(rotation(0.9), I, I),
            4.0,
            {**rescaled, "solver": "euler", "step": 0.02},
        ),
        Scene(
            "multi-head",
            "Two heads",
            r"$p_h\propto e^{4x_hy_h}$,  $h=1,2$,  $V_1+V_2=I$",
            "each head splits one coordinate: four corners\n" r"$z=e^{-tV}x$,  $t=5$",
            two_heads,
            5.0,
            rescaled,
        ),
        Scene(
            "causal",
            "Causal softmax",
            r"$p\propto e^{Qx\cdot Ky}\,1_{r\leq s}$,  $Q=K=V=I$",
            "dark tokens come first and lead\n" r"$z=e^{-tV}x$,  $t=6$",
            mf.Causal(mf.Softmax(I, I, I)),
            6.0,
            rescaled,
            lambda tokens: tokens.with_positions(),
            True,
        ),
        Scene(
            "sphere",
            "Softmax on the circle",
            r"$p\propto e^{\beta x\cdot y}$,  $\beta=9$,  $|x|=1$",
            "rivers of tokens rest long, then merge\n" r"outwards: $\log t$, up to $t=300$",
            mf.Softmax(I, I, I, tau=1 / 9),
            300.0,
            {"space": mf.Sphere(), "save": mf.log_times(101, 0.05)},
            lambda tokens: tokens.push(mf.Sphere().retract),
        ),
    ]


def run_tour(
    out: str | Path = "runs/tour",
    n: int = 300,
    seed: int = 0,
    animation: bool = True,
    watch: Callable[[list[Scene]], Iterable[Scene]] = iter,
    frames: int = 72,
) -> Tour:
    """Run every scene, draw them side by side, and write `tour.png`, `clusters.gif` and `tour.json` into `out`.

    **Arguments:** `n` tokens from `seed`; `animation`: whether to write the GIF, of so many `frames`; `watch`
    wraps the list of scenes, e.g. in a progress bar.
    """
    began = time.monotonic()
    out = Path(out)
    tokens = petal_tokens(checks.whole(n, "n", 5), seed)
    colours = petals(tokens)
    out.mkdir(parents=True, exist_ok=True)  # before the computing: a bad folder should not cost a minute
    rows, panels, runs = [], [], {}
    for scene in watch(scenes()):
        run, row = run_scene(scene, tokens)
        rows.append(row)
        runs[scene.name] = run
        panels.append(_panel(scene, run, None if scene.colour_by_position else colours))
    first = Panel(runs["softmax"], f"{n} tokens", r"$\mu_0$ in the plane, in five petals", "$t=0$", colours, still=True)
    figure = panel_figure(
        [first, *panels],
        r"One cloud of tokens, eleven attentions:   $\dot{x}=V\,\int\ \ y\,p(x,y)\,d\mu(y)$",
        "Lines are the paths of the tokens, stronger towards the end; dots their final places, coloured by the petal "
        "in which they started (causal: by position); grey dots the start.",
    )
    figure.savefig(out / "tour.png")
    files = [str(out / "tour.png")]
    if animation:
        film = animate_run(runs["multi-head"], out / "clusters.gif", colour=colours, frames=frames, title="Two heads")
        files.append(str(film))
    files.append(str(out / "tour.json"))
    tour = Tour(n, seed, time.monotonic() - began, rows, files)
    (out / "tour.json").write_text(json.dumps(tour.as_dict(), indent=2, allow_nan=False) + "\n")
    return tour


def run_scene(scene: Scene, tokens: mf.PointCloud) -> tuple[mf.Trajectory, Row]:
    """One kind: its run and its numbers."""
    began = time.monotonic()
    start = scene.prepare(tokens)
    run = mf.flow(scene.field, start, scene.t1, progress=False, **scene.options)
    seconds = time.monotonic() - began
    reached = float(run.times[-1])
    on_sphere = "space" in scene.options
    # The flow on the sphere keeps the radius; elsewhere the theorem bounds it, if there is one for the kind.
    bound = start.radius if on_sphere else mf.support_bound(scene.field, start, reached)
    row = Row(
        name=scene.name,
        radius=float(run.original().final.radius),
        bound=None if bound is None else float(bound),
        clusters=run.clusters().count,
        effective_rank=float(mf.effective_rank(run.final)),
        steps=int(run.stats["steps"]),
        seconds=seconds,
        outcome=run.outcome.kind,
        time=float(run.outcome.time),
    )
    return run, row


def outcome_words(row: Row) -> str:
    """How the run ended, short enough for a table."""
    words = {
        Ending.REACHED.name: "reached",
        Ending.STOPPED.name: "stopped at",
        Ending.STEP_TOO_SMALL.name: "blew up near",
        Ending.NOT_FINITE.name: "blew up near",
    }
    return f"{words.get(row.outcome, row.outcome + ' at')} t = {row.time:.4g}"


def _panel(scene: Scene, run: mf.Trajectory, colour: Any) -> Panel:
    return Panel(
        run, scene.title, scene.formula, scene.caption, colour, circle="space" in scene.options, view=scene.view
    )
