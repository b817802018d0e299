"""The pictures of the first page and of the concept pages.

python docs/pictures/concepts.py --out docs/img                  # all of them
python docs/pictures/concepts.py --out docs/img --only fields    # one: clusters, gaussians, measures, fields, flows
"""

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import small
from matplotlib.patches import Ellipse

import meanformer as mf
from meanformer.plots import style
from meanformer.plots.densities import INK_MAP

WHITE = {"figure.facecolor": "white", "savefig.facecolor": "white", "axes.facecolor": "white"}


def clusters() -> Any:
    """The first flow of `start.md`: 40 tokens in the plane, in the rescaled frame."""
    I = jnp.eye(2)
    tokens = mf.uniform_cube(d=2, low=-5, high=5).sample(40, key=jax.random.key(0))
    run = mf.flow(mf.Softmax(Q=I, K=I, V=I), tokens, t1=8.0, frame=mf.Rescaled())
    figure, ax = plt.subplots(figsize=(4.8, 4.8), layout="constrained")
    run.plot(ax, size=30.0)
    return figure


def gaussians() -> Any:
    """The first Gaussians of `start.md`: one collapses onto a line, one blows up."""
    I = jnp.eye(2)
    e1 = I[:1]
    g = mf.Gaussian(mean=jnp.zeros(2), cov=I)
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained")
    for ax, K in zip(axes, (-e1, e1), strict=True):
        mf.flow(mf.Softmax(Q=e1, K=K, V=I), g, t1=jnp.inf).plot(ax)
    return figure


def measures() -> Any:
    """One mixture as tokens, as the Gaussian of its moments, and as a density on a grid."""
    law = mf.gaussian_mixture(means=[[-1.0, 0.0], [1.0, 0.5]], covs=0.1, weights=[0.4, 0.6])
    tokens, gaussian = law.sample(400, key=jax.random.key(0)), mf.to_gaussian(law)
    density = mf.to_density(law, cells=64)
    figure, axes = plt.subplots(1, 3, figsize=(10.2, 3.0), sharex=True, sharey=True, layout="constrained")
    axes[0].scatter(*tokens.points.T, s=9, color=style.PALETTE[0], linewidth=0)
    axes[0].set_title("400 tokens")
    values, vectors = np.linalg.eigh(np.asarray(gaussian.covariance))
    for deviations in (1, 2):
        size = 2 * deviations * np.sqrt(values)
        angle = np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0]))
        ellipse = Ellipse(tuple(gaussian.mean.tolist()), *size, angle=angle)
        ellipse.set(facecolor=(*mpl.colors.to_rgb(style.PALETTE[0]), 0.14), edgecolor=style.PALETTE[0], linewidth=1.4)
        axes[1].add_patch(ellipse)
    axes[1].set_title("Gaussian, 1 and 2 deviations")
    values = np.asarray(density.values).T  # rows of a picture are the second coordinate
    shown = (values > 2e-3 * values.max()).astype(float)
    scale = mpl.colors.PowerNorm(0.6, 0, values.max())
    axes[2].pcolormesh(density.edges(0), density.edges(1), values, cmap=INK_MAP, norm=scale, alpha=shown)
    axes[2].set_title(r"density, $64\times64$ cells")
    for ax, mu in zip(axes, (tokens, gaussian, density), strict=True):
        ax.plot(*mu.mean, "+", color=style.PALETTE[1], markersize=11, markeredgewidth=2, zorder=5)
        ax.set(
            xlim=(-2.7, 2.7), ylim=(-1.6, 2.2), aspect="equal", xlabel="$x_1$", ylabel="$x_2$" if ax is axes[0] else ""
        )
    return figure


def fields() -> Any:
    """The arrows of softmax attention around two contexts, and one query under both."""
    field = mf.Softmax(Q=jnp.eye(2), K=jnp.eye(2), V=jnp.eye(2), tau=0.7)
    keys = jax.random.split(jax.random.key(3), 2)
    two = mf.gaussian_mixture(means=[[-1.6, 0.9], [1.6, 0.9]], covs=0.03).sample(24, key=keys[0])
    below = mf.Gaussian(mean=[0.3, -1.7], cov=0.03 * np.eye(2)).sample(12, key=keys[1])
    three = mf.PointCloud(jnp.concatenate([two.points, below.points]))
    ticks = np.linspace(-2.4, 2.4, 15)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    query = np.array([[0.9, -0.9]])
    figure, axes = plt.subplots(1, 2, figsize=(9.4, 4.7), sharex=True, sharey=True, layout="constrained")
    arrows = {"angles": "xy", "scale_units": "xy", "pivot": "tail"}
    for ax, context, title in zip(
        axes, (two, three), ("context $\\mu$", "context $\\nu$: one group more"), strict=True
    ):
        velocity = np.asarray(field(context, grid))
        speed = np.linalg.norm(velocity, axis=1)
        ax.quiver(*grid.T, *velocity.T, speed, cmap=style.ordered_map(), clim=(0, 2), scale=5.5, width=0.0042, **arrows)
        ax.scatter(*context.points.T, s=16, color=style.PALETTE[1], edgecolor="white", linewidth=0.4, zorder=3)
        at = np.asarray(field(context, query))
        ax.quiver(*query.T, *at.T, color=style.INK, scale=2.2, width=0.009, zorder=5, **arrows)
        ax.plot(*query.T, "o", color=style.INK, markersize=7, zorder=6)
        ax.annotate("$x$", query[0], (9, -12), textcoords="offset points", fontsize=14, zorder=6)
        ax.set(title=title, aspect="equal", xlim=(-2.7, 2.7), ylim=(-2.7, 2.7), xlabel="$x_1$")
    axes[0].set_ylabel("$x_2$")
    return figure


def flows() -> Any:
    """One problem on a line in three representations, each with the exact mean and deviations."""
    g = mf.Gaussian(mean=[0.4], cov=[[0.25]])
    field = mf.Softmax(Q=0.8, K=1.1, V=0.9)
    starts = (g.sample(256, key=jax.random.key(0)), g, mf.to_density(g, cells=100))
    runs = [mf.flow(field, start, t1=1.0, save=41) for start in starts]
    figure, axes = plt.subplots(1, 3, figsize=(10.2, 3.6), sharex=True, sharey=True, layout="constrained")
    options = ({"colour": "#4477AA"}, {}, {"colour_bar": False})
    titles = ("256 tokens", "Gaussian: $m\\pm2\\sigma$", "density on a grid")
    exact = runs[1]
    mean = np.asarray(exact.states.mean)[:, 0]
    spread = 2 * np.sqrt(np.asarray(exact.states.covariance)[:, 0, 0])
    for ax, run, title, more in zip(axes, runs, titles, options, strict=True):
        run.plot(ax, title=title, **more)
        for shift in (-1, 0, 1):
            ax.plot(
                exact.times,
                mean + shift * spread,
                color=style.PALETTE[1],
                linewidth=1.3,
                linestyle=(0, (4, 2)),
                zorder=4,
            )
        ax.set(xlim=(0, 1), ylim=(-1.6, 3.6), xlabel="time $t$", ylabel="$x$" if ax is axes[0] else "")
    return figure


PICTURES = {
    "clusters": ("start_clusters", clusters),
    "gaussians": ("start_gaussians", gaussians),
    "measures": ("concepts_measures", measures),
    "fields": ("concepts_fields", fields),
    "flows": ("concepts_flows", flows),
}


def main() -> None:
    """Draw the pictures that are asked for."""
    parser = argparse.ArgumentParser(description="The pictures of the first page and of the concept pages.")
    parser.add_argument("--out", type=Path, default=Path("docs/img"), help="the folder")
    parser.add_argument("--only", choices=PICTURES, help="one picture")
    options = parser.parse_args()
    for name in PICTURES if options.only is None else (options.only,):
        file, draw = PICTURES[name]
        with ExitStack() as stack:
            stack.enter_context(style.style())
            stack.enter_context(mpl.rc_context(WHITE))
            small.save(draw(), options.out / f"{file}.png")


if __name__ == "__main__":
    main()
