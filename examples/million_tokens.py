r"""A million tokens under softmax attention.

    python examples/million_tokens.py          # runs/million_tokens.png; --n 100000 is quicker

Attention looks at all pairs, here $10^{12}$ of them in each step. With keys of dimension 1, 2 or 3 the sums over tokens
go through a grid in $O(n)$ work, at an accuracy that you name: `accuracy=1e-6` is the error of a velocity relative
to the size of the field. The tokens are a Gaussian sample, $\Sigma_0=\mathrm{diag}(0.4,0.1)$, with $A=I/2$, $V=I$;
in the limit (MATH e.3)

    Sigma(1) = (Sigma_0^{-1} - I)^{-1} = diag(2/3, 1/9).

Look for: the covariance of the tokens, with an error like $n^{-1/2}$; the error of the sums, below the accuracy.
"""

import argparse
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm

import meanformer as mf
from meanformer.plots import style


def main() -> None:
    """Flow the cloud, compare its covariance, draw where the tokens are."""
    parser = argparse.ArgumentParser(description="A million tokens under softmax attention.")
    parser.add_argument("--out", type=Path, default=Path("runs/million_tokens.png"), help="the picture")
    parser.add_argument("--n", type=int, default=1_000_000, help="number of tokens")
    options = parser.parse_args()

    I = np.eye(2)
    g = mf.Gaussian(mean=[0.0, 0.0], cov=[[0.4, 0.0], [0.0, 0.1]])
    tokens = g.sample(options.n, key=jax.random.key(0))
    began = time.monotonic()
    run = mf.flow(mf.Softmax(Q=0.5 * I, K=I, V=I), tokens, t1=1.0, accuracy=1e-6, save=11, sample=500)
    seconds = time.monotonic() - began
    found, exact = np.asarray(run.statistics["covariance"][-1]), np.diag([2 / 3, 1 / 9])
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    print(f"{run.final.n:,} tokens, {run.stats['steps']} steps, {seconds:.1f} s, the compiling included")
    print(f"covariance diag({found[0, 0]:.5f}, {found[1, 1]:.5f}), off it {found[0, 1]:+.5f}; limit diag(2/3, 1/9)")
    print(f"relative error {error:.2e}, times sqrt(n) {error * options.n**0.5:.2f}")
    print(f"sums: {run.stats['sums']}; largest error measured {run.stats['sum_error']:.1e}")

    turn = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    with style.style():
        figure, axes = plt.subplots(1, 2, figsize=(10.0, 3.2), layout="constrained", sharex=True, sharey=True)
        for ax, cloud, cov, title in (
            (axes[0], tokens, np.diag([0.4, 0.1]), f"{options.n:,} tokens, $t=0$"),
            (axes[1], run.final, exact, r"$t=1$; ellipses: $\Sigma=\mathrm{diag}(2/3,1/9)$"),
        ):
            bins = ax.hist2d(
                *np.asarray(cloud.points).T,
                bins=(200, 100),
                range=[(-4.0, 4.0), (-2.0, 2.0)],
                norm=LogNorm(),
                cmap="viridis",
            )
            for deviations in (1, 2, 3):
                ax.plot(*(deviations * np.sqrt(cov) @ circle), color=style.PALETTE[1], linewidth=1.2)
            ax.set(xlabel="$x_1$", title=title, aspect="equal")
        axes[0].set_ylabel("$x_2$")
        figure.colorbar(bins[3], ax=axes, label="tokens in a bin")
        options.out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.out, dpi=100)
        plt.close(figure)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
