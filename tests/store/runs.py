"""Small runs of every kind, to be interrupted."""

import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import meanformer as mf
from meanformer.store import ledger
from meanformer.store.sealed import seal, unseal

I = jnp.eye(2)


def tokens() -> mf.PointCloud:
    return mf.uniform_cube(d=2, low=-2, high=2).sample(30, key=jr.key(0))


def long_flow(journal: Any = None) -> mf.Trajectory:
    """A few segments of 64 steps."""
    return mf.flow(mf.Softmax(I, I, I), tokens(), 5.0, rtol=1e-12, frame=mf.Rescaled(), journal=journal, progress=False)


def pieces(journal: Any = None) -> mf.Trajectory:
    field = mf.Piecewise([mf.Softmax(I, I, I), mf.L2(I, I, -I)], [0.5])
    return mf.flow(field, tokens(), 1.0, sample=10, journal=journal, progress=False)


def layers(journal: Any = None) -> mf.Trajectory:
    return mf.layers(mf.Softmax(I, I, I), tokens(), 5, journal=journal)


def shrinking(journal: Any = None) -> mf.Trajectory:
    """The smallest run with some segments."""
    return mf.layers(mf.Affine(-0.5 * jnp.eye(2)), tokens(), 3, journal=journal)


def endless(journal: Any = None) -> mf.Trajectory:
    gaussian = mf.Gaussian(jnp.ones(2), I)
    return mf.flow(mf.Softmax(I, -I, I), gaussian, jnp.inf, journal=journal, progress=False)


def density(journal: Any = None) -> mf.Trajectory:
    one = jnp.ones((1, 1))
    rho = mf.to_density(mf.Gaussian([0.0], cov=0.2), cells=80)
    return mf.flow(mf.Softmax(one, one, one), rho, 0.5, save=4, journal=journal, progress=False)


def planned(journal: Any = None) -> mf.Trajectory:
    """Fast sums: the plan of the first segment lasts for the others, and must be made again as it was."""
    cloud = mf.uniform_cube(d=1, low=-2, high=2).sample(6000, key=jr.key(1))
    field = mf.Softmax(jnp.ones((1, 1)), jnp.ones((1, 1)), 0.1 * jnp.ones((1, 1)))
    steps = {"solver": "euler", "step": 1 / 130}
    return mf.flow(field, cloud, 1.0, accuracy=1e-6, save=3, journal=journal, progress=False, **steps)


RUNS = {"pieces": pieces, "layers": layers, "endless": endless, "density": density, "planned": planned}


def rewrite(file: Path, **changes: Any) -> None:
    """Change entries of a JSON file as its writer would, with the right checksum, and in the list of files."""
    data = seal(unseal(file.read_bytes()) | changes)
    file.write_bytes(data)
    run = next(folder for folder in file.parents if (folder / ledger.NAME).exists())
    with (run / ledger.NAME).open("ab") as listed:
        listed.write(ledger.line([file.relative_to(run).as_posix(), zlib.crc32(data)]))


def bits(run: mf.Trajectory) -> list[tuple[str, bytes]]:
    """All arrays of a run, to the bit."""
    leaves = jax.tree.leaves((run.times, run.saved, run.last, run.statistics, run.outcome))
    return [(str(a.dtype), np.asarray(a).tobytes()) for a in leaves]
