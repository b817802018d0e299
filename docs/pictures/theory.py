"""The pictures of the page on the theory.

python docs/pictures/theory.py                    # all of them, into docs/img
python docs/pictures/theory.py --only density     # one: bounds, clusters, density, rate
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np
import small

import meanformer as mf

I = np.eye(2)


def bounds() -> Any:
    """Radius and trace of tokens under Sinkhorn attention, below their bounds."""
    tokens = mf.uniform_ball(d=2, radius=1.0).sample(200, key=jax.random.key(0))
    run = mf.flow(mf.Sinkhorn([[1.0, 0.3], [0.0, 0.8]], [[0.9, -0.2], [0.4, 0.7]], 0.7 * I), tokens, t1=1.0, save=21)
    return mf.check(run).plot()


def clusters() -> Any:
    """Tokens on a line gather in two clusters: those of the page."""
    g = mf.Gaussian(mean=[0.4], cov=[[0.25]])
    tokens = mf.to_cloud(g, 64, key=jax.random.key(0))
    run = mf.flow(mf.Softmax(2.0, 2.0, 1.0), tokens, t1=8.0, frame=mf.Rescaled())
    return mf.clusters_along(run).plot(run=run).flat[0]


def density() -> Any:
    """Three humps in the plane under L2 attention, at four times."""
    law = mf.gaussian_mixture([[-1.2, 0.3], [0.9, 0.9], [0.4, -1.0]], [0.15 * I] * 3, weights=[0.4, 0.35, 0.25])
    run = mf.flow(mf.L2(0.7 * I, 0.7 * I, I), mf.to_density(law, cells=36), t1=0.8, save=13)
    return np.ravel(run.plot(times=4))[0]


def rate() -> Any:
    """The rate of the mean-field limit, as the page tells it."""
    g = mf.Gaussian(mean=[0.4], cov=[[0.25]])
    field = mf.Softmax(Q=0.8, K=1.1, V=0.9)
    return mf.mean_field_rate(field, g, 0.5, n=[50, 100, 200, 400, 800], repeats=64, key=jax.random.key(0)).plot()


PICTURES = {"bounds": bounds, "clusters": clusters, "density": density, "rate": rate}


def main() -> None:
    """Draw the pictures that are asked for."""
    parser = argparse.ArgumentParser(description="The pictures of the page on the theory.")
    parser.add_argument("--out", type=Path, default=Path("docs/img"), help="the folder")
    parser.add_argument("--only", choices=PICTURES, help="one picture")
    options = parser.parse_args()
    for name in PICTURES if options.only is None else (options.only,):
        small.save(PICTURES[name]().figure, options.out / f"theory_{name}.png", dpi=110)


if __name__ == "__main__":
    main()
