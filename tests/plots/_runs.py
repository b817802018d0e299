"""Runs of every kind that pictures may meet, made by hand: nothing is compiled, and where everything is is known.

Tokens and Gaussians grow by the factor e^t along the first axis and shrink by e^-t along the others.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import meanformer as mf
from meanformer.flows.densities import DensitySystem
from meanformer.flows.frames import Original
from meanformer.flows.gaussians import GaussianSystem
from meanformer.flows.particles import ParticleSystem
from meanformer.outcome import Ending, Outcome
from meanformer.spaces import Euclidean

TIMES = np.linspace(0, 1, 5)
STATS = {"steps": 4, "rejected": 0, "seconds": 0.1}


def growth(d: int, times=TIMES) -> np.ndarray:
    rates = np.array([1.0, *[-1.0] * (d - 1)])
    return np.exp(np.asarray(times)[:, None] * rates)


def outcome(kind: str = "REACHED", time: float = 1.0) -> Outcome:
    return Outcome(jnp.asarray(Ending[kind].value), jnp.asarray(time))


def trajectory(system, saved, times=TIMES, discrete=False, ending=None, **others) -> mf.Trajectory:
    saved = jax.tree.map(jnp.asarray, saved)
    last = jax.tree.map(lambda a: a[-1], saved)
    ending = outcome() if ending is None else ending
    return mf.Trajectory(jnp.asarray(times), saved, last, ending, STATS, system, discrete, **others)


def softmax(d: int) -> mf.Softmax:
    return mf.Softmax(jnp.eye(d), jnp.eye(d), jnp.eye(d))


def token_run(d: int, n: int = 7, discrete: bool = False, field=None, times=TIMES, positions=False, space=None):
    cloud = mf.PointCloud(np.random.default_rng(d).normal(size=(n, d)))
    cloud = cloud.with_positions() if positions else cloud
    points = np.asarray(cloud.points)[None] * growth(d, times)[:, None]
    system = ParticleSystem(softmax(d) if field is None else field, cloud, space or Euclidean(), Original())
    return trajectory(system, (points, None), times, discrete)


def sampled_run() -> mf.Trajectory:
    whole = token_run(2, n=9)
    kept = mf.PointCloud(whole.system.mu.points[:4])
    system = ParticleSystem(whole.field, kept, Euclidean(), Original())
    every = whole.states
    statistics = {"mean": every.mean, "covariance": every.covariance, "radius": every.radius}
    run = trajectory(system, (whole.points[:, :4], None), statistics=statistics, whole=whole.system)
    object.__setattr__(run, "last", whole.last)
    return run


def sphere_run() -> mf.Trajectory:
    angles = np.linspace(0, 3, 6)[None] * np.linspace(1, 0.2, 5)[:, None]
    points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    system = ParticleSystem(softmax(2), mf.PointCloud(points[0]), mf.Sphere(), Original())
    return trajectory(system, (points, None))


def lost_run() -> mf.Trajectory:
    """One token leaves the floating-point range, the others stay."""
    run = token_run(2)
    points = np.array(run.points)
    points[1:, 0] *= np.array([1e3, 1e8, np.inf, np.nan])[:, None]
    return trajectory(run.system, (points, None), ending=outcome("NOT_FINITE"))


def gaussian_run(d: int, times=TIMES, kind: str = "CONVERGED") -> mf.Trajectory:
    mu = mf.Gaussian(jnp.ones(d), jnp.eye(d))
    means, factors = np.ones((len(times), d)), growth(d, times)[:, :, None] * np.eye(d)
    fate = mf.Fate(kind, float(times[-1]), 0.0, 1, np.eye(d), 0.0, 0.0, np.zeros(d), 4)
    return trajectory(GaussianSystem(softmax(d), mu), (means, factors), times, fate=fate)


def density_run(d: int, positions: bool = False) -> mf.Trajectory:
    cells = (20, 24)[:d]
    centres = np.meshgrid(*[np.linspace(-2, 2, c) for c in cells], indexing="ij")
    values = np.stack([np.exp(-sum(x**2 for x in centres) / (2 * s)) for s in (0.5, 0.3, 0.1)])
    values = np.stack([values, values[:, ::-1]], axis=1) if positions else values
    masses = values / values.reshape(3, -1).sum(axis=1).reshape(3, *[1] * (values.ndim - 1))
    density = masses[0] / np.prod([4 / c for c in cells])
    rho = mf.Density(density, [-2.0] * d, [2.0] * d, positions=jnp.array([0.2, 0.8]) if positions else None)
    return trajectory(DensitySystem(softmax(d), rho), (masses, np.zeros(3)), TIMES[[0, 2, 4]])


LONG = np.concatenate([[0.0], np.geomspace(1e-3, 12.0, 30)])

KINDS = {
    **{f"tokens in dimension {d}": functools.partial(token_run, d) for d in (1, 2, 3, 10)},
    "layers": functools.partial(token_run, 2, discrete=True),
    "one token": functools.partial(token_run, 2, 1),
    "one token on a line": functools.partial(token_run, 1, 1),
    "one time": functools.partial(token_run, 2, times=TIMES[:1]),
    "long": functools.partial(token_run, 2, times=LONG),
    "causal": lambda: token_run(2, field=mf.Causal(softmax(2)), positions=True),
    "heads": lambda: token_run(2, field=mf.MultiHead([softmax(2), mf.L2(jnp.eye(2), jnp.eye(2), jnp.eye(2))])),
    "no attention": lambda: token_run(2, field=mf.Affine(jnp.eye(2))),
    "sample": sampled_run,
    "sphere": sphere_run,
    "lost": lost_run,
    **{f"Gaussian in dimension {d}": functools.partial(gaussian_run, d) for d in (1, 2, 3, 10)},
    "long Gaussian": functools.partial(gaussian_run, 2, LONG, "DIVERGED"),
    "density in dimension 1": functools.partial(density_run, 1),
    "density in dimension 2": functools.partial(density_run, 2),
    "density with positions": functools.partial(density_run, 1, True),
}


@functools.cache
def run(kind: str) -> mf.Trajectory:
    return KINDS[kind]()


def into(folder: Path) -> Callable[[str, bytes], None]:
    """What takes the files of figures, and puts them into a folder."""

    def keep(name: str, data: bytes) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

    return keep
