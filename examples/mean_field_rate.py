r"""How fast do n tokens approach their mean-field limit? Like n^(-1/2).

    python examples/mean_field_rate.py         # runs/mean_field_rate.png

$n$ independent tokens of a Gaussian with $\Sigma_0=\mathrm{diag}(0.4,0.1)$ move by softmax attention with $A=I/2$,
$V=I$. The limit $n\to\infty$ is exact (MATH e.3): $\Sigma(1)=(\Sigma_0^{-1}-I)^{-1}=\mathrm{diag}(2/3,1/9)$. The error

    | Sigma_n(1) - Sigma(1) |_F   ~   n^(-1/2)

holds while $\|\Sigma^{1/2}A\Sigma^{1/2}\|<1/\sqrt2$ along the flow, here 1/3 at the end (MATH d.5); beyond, the
sampling variance of softmax attention is infinite, and the library warns.

Look for: the fitted slope and its 95 % interval (bootstrap over the draws), beside -1/2.
"""

import argparse
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import meanformer as mf


def main() -> None:
    """Measure the rate and draw it."""
    parser = argparse.ArgumentParser(description="The rate of the mean-field limit.")
    parser.add_argument("--out", type=Path, default=Path("runs/mean_field_rate.png"), help="the picture")
    parser.add_argument("--n", type=int, nargs="+", default=[250, 500, 1000, 2000, 4000], help="numbers of tokens")
    parser.add_argument("--repeats", type=int, default=24, help="draws for each number of tokens")
    options = parser.parse_args()

    I = np.eye(2)
    g = mf.Gaussian(mean=[0.0, 0.0], cov=[[0.4, 0.0], [0.0, 0.1]])
    half = mf.Softmax(Q=0.5 * I, K=I, V=I)
    rate = mf.mean_field_rate(half, g, t1=1.0, n=options.n, repeats=options.repeats, key=jax.random.key(0))
    for n, rms in zip(rate.n, rate.rms, strict=True):
        print(f"n = {n:>5}: error {rms:.4f}, relative to |Sigma(1)| {rms / np.hypot(2 / 3, 1 / 9):.1%}")
    low, high = rate.interval
    print(f"slope {rate.slope:.3f}, 95 % interval {low:.3f} to {high:.3f}; theory -0.500")

    ax = rate.plot()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    ax.figure.savefig(options.out, dpi=100)
    plt.close(ax.figure)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
