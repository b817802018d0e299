r"""Masked attention on the sphere: every token tends to the first one.

    python examples/masked.py                  # runs/masked.png

In a causal transformer token $i$ sees the tokens $1,\dots,i$ only. On the unit sphere, where layer normalisation keeps
them, with $V=I$ and any $Q$, $K$,

    dx_i/dt = Proj_{x_i} sum_{j <= i} P_ij x_j,      P_ij ~ exp(Q x_i . K x_j),      Proj_x v = v - (x . v) x.

The first token sees itself only and does not move; all others tend to it, from almost every start (Karagodin et al.
2024). At the end all logits of a row are equal, $P_{ij}=1/i$, and the equation linearised at $x_1$ is triangular, with
the rates $1-1/i$. The second token is the slowest, and the others end in a line behind it, ordered by position:

    x_i - x_1  ~  (i - 1) (x_2 - x_1),      1 - x_i . x_1 = |x_i - x_1|^2 / 2  ~  (i - 1)^2 exp(-t),

which the later tokens reach slowly: the next rate is 2/3, so that the rest decays like $e^{-t/6}$.

Look for: the lowest curve, that of the second token, parallel to the dashed line; the third at four times its height.
"""

import argparse
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import meanformer as mf
from meanformer.plots import style


def main() -> None:
    """Run, measure the rate, draw the sphere and the decay."""
    parser = argparse.ArgumentParser(description="Masked attention on the sphere.")
    parser.add_argument("--out", type=Path, default=Path("runs/masked.png"), help="the picture")
    parser.add_argument("--n", type=int, default=48, help="number of tokens")
    options = parser.parse_args()

    rng = np.random.default_rng(1)
    Q, K = rng.standard_normal((2, 3, 3))
    tokens = mf.uniform_sphere(d=3).sample(options.n, key=jax.random.key(0)).with_positions()
    run = mf.flow(mf.Causal(mf.Softmax(Q, K, V=np.eye(3))), tokens, t1=30.0, space=mf.Sphere(), save=121, rtol=1e-10)

    times, points = np.asarray(run.times), np.asarray(run.points)
    gaps = np.sum((points[:, 1:] - points[:, :1]) ** 2, axis=2) / 2
    rate = -np.polyfit(times[times >= 15], np.log(gaps[times >= 15, 0]), 1)[0]
    third = np.sqrt(gaps[-1, 1] / gaps[-1, 0])
    print(f"the first token moved by {np.abs(points[:, 0] - points[0, 0]).max():.1e}")
    print(f"largest 1 - x_i . x_1: {gaps[0].max():.3f} at t = 0, {gaps[-1].max():.1e} at t = 30")
    print(f"second token, t = 15 to 30: decays with rate {rate:.5f}; theory 1")
    print(f"third token, t = 30: {third:.3f} times as far as the second; theory 2")

    with style.style():
        figure = plt.figure(figsize=(10.4, 4.6), layout="constrained")
        left, right = figure.add_subplot(1, 2, 1, projection="3d"), figure.add_subplot(1, 2, 2)
        run.plot(left, title=f"{options.n} tokens on the sphere, dark ones come first")
        left.scatter(*points[0, 0], s=70, facecolor="none", edgecolor=style.PALETTE[1], linewidth=1.6, zorder=5)
        for gap, colour in zip(gaps.T, style.ordered_colours(np.arange(options.n, dtype=float))[1:], strict=True):
            right.semilogy(times, gap, color=colour, linewidth=1.0)
        theory = 0.2 * gaps[-1, 0] * np.exp(times[-1] - times)
        right.semilogy(times, theory, "--", color=style.PALETTE[1], linewidth=1.6, label=r"theory: slope of $e^{-t}$")
        right.set(xlabel="time $t$", ylabel=r"$1-x_i\cdot x_1$", ylim=(1e-15, 1e1))
        right.set_title("Distance from the first token")
        right.legend(frameon=False, fontsize=9)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.out, dpi=100)
        plt.close(figure)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
