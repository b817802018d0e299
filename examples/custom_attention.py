r"""A kind of attention of your own, in one class: Student's kernel in place of the Gaussian one.

    python examples/custom_attention.py        # runs/custom_attention.png

L2 attention weighs by $e^{-|Qx-Ky|^2/\tau}$: what is far away does not count. A kernel with a heavy tail sees it:

    Gamma(x) = sum_j p_j V y_j,   p_j = w_j k(x, y_j) / sum_l w_l k(x, y_l),   k(x, y) = 1 / (1 + |Qx - Ky|^2 / tau).

A subclass of `mf.AbstractAttention` says how values are mixed. The flow, frames, masks, heads, sums of fields, layers,
films, and the radius bound $R(t)\le e^{\|V\|t}R(0)$, which holds for every average, then follow.

Look for: in the frame $z=e^{-t}x$ L2 attention freezes into many small groups, and leaves the token far below alone;
under Student's kernel each of the three groups gathers, that token too.
"""

import argparse
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import meanformer as mf
from meanformer.plots import style

L2, STUDENT = r"L2, $e^{-|x-y|^2/\tau}$", r"Student, $1/(1+|x-y|^2/\tau)$"


class Student(mf.AbstractAttention):
    r"""Averages with weights $1/(1+|Qx-Ky|^2/\tau)$; forms an array of n x n numbers, for some thousand tokens."""

    maps: mf.Projections
    tau: jax.Array
    averages: ClassVar[bool] = True  # p >= 0 and sum p <= 1: the radius bound holds
    normalised: ClassVar[bool] = True  # sum p = 1: a mask renormalises
    not_gaussian: ClassVar[str | None] = "weighs by a rational function, and leaves the family of Gaussians"

    def __init__(self, Q: Any, K: Any, V: Any, tau: Any = 1.0):
        self.maps = mf.Projections(Q, K, V)
        self.tau = jnp.asarray(tau, self.maps.Q.dtype)

    def mix(self, mu: mf.PointCloud, x: jax.Array, values: jax.Array, view: mf.View) -> jax.Array:
        """The average of the rows of `values`, for each row of `x`."""
        queries, keys = self.maps.queries(x), self.maps.keys(mu.points)
        squares = jnp.sum((queries[:, None] - keys[None]) ** 2, axis=2)
        p = jnp.where(view.seen(mu, x), mu.weights[None] / (1 + squares / self.tau), 0)  # all are seen without a mask
        return p @ values / p.sum(axis=1, keepdims=True)


def by_hand(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The same field in two loops, for Q = K = V = I and tau = 0.2."""
    rows = []
    for a in x:
        k = [wj / (1 + np.sum((a - y) ** 2) / 0.2) for y, wj in zip(x, w, strict=True)]
        rows.append(sum(kj * y for kj, y in zip(k, x, strict=True)) / sum(k))
    return np.array(rows)


def main() -> None:
    """Check the class against two loops, and compare it with L2 attention."""
    parser = argparse.ArgumentParser(description="A kind of attention of your own.")
    parser.add_argument("--out", type=Path, default=Path("runs/custom_attention.png"), help="the picture")
    parser.add_argument("--n", type=int, default=120, help="number of tokens")
    options = parser.parse_args()

    I = np.eye(2)
    means = [[-1.5, -0.8], [1.5, -0.8], [0.0, 1.6]]
    tokens = mf.gaussian_mixture(means, [0.12 * I] * 3).sample(options.n, key=jax.random.key(0))
    mine = Student(Q=I, K=I, V=I, tau=0.2)
    error = np.abs(mf.velocity(mine, tokens) - by_hand(np.asarray(tokens.points), np.asarray(tokens.weights))).max()
    print(f"against two loops: {error:.1e}")
    runs = {
        L2: mf.flow(mf.L2(I, I, I, tau=0.2), tokens, t1=4.0, frame=mf.Rescaled()),
        STUDENT: mf.flow(mine, tokens, t1=4.0, frame=mf.Rescaled()),
    }
    last, bound = runs[STUDENT].original().final, mf.support_bound(mine, tokens, t1=4.0)
    print(f"at t = 4: radius {last.radius:.2f} <= {bound:.2f}, the bound of the theory")
    masked = mf.velocity(mf.Causal(mine), tokens.with_positions())
    print(f"masked, the first token sees itself: {np.abs(masked[0] - tokens.points[0]).max():.1e}")
    groups = np.argmin([np.linalg.norm(np.asarray(tokens.points) - m, axis=1) for m in means], axis=0)
    for name, run in runs.items():
        z = np.asarray(run.final.points)
        widths = [np.linalg.norm(z[groups == k] - z[groups == k].mean(axis=0), axis=1).mean() for k in range(3)]
        print(f"{name.split(',')[0]}: mean distance from the centre of the group {np.mean(widths):.3f}")

    with style.style():
        figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.7), layout="constrained")
        for ax, (name, run) in zip(axes, runs.items(), strict=True):
            run.plot(ax, colour=groups, view=2.6, title=f"{name}\n$z=e^{{-t}}x$, up to $t=4$")
        options.out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.out, dpi=100)
        plt.close(figure)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
