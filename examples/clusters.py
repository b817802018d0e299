r"""Tokens gather at the corners of a polygon.

    python examples/clusters.py                # runs/clusters.png
    python examples/clusters.py --film         # and runs/clusters.gif

Softmax attention with $Q=K=V=I$ moves $n$ tokens of the plane by

    dx_i/dt = sum_j P_ij x_j,      P_ij = exp(x_i . x_j) / sum_l exp(x_i . x_l).

They grow like $e^t$; the frame $z=e^{-t}x$ takes the growth out. In it every token tends to 0 or to the boundary of a
convex polygon, generically to a corner (Geshkovski et al. 2023; MATH h, row 2). A corner is a limit $z$ with
$z\cdot z_l\le|z|^2$ for all other limits $z_l$: nobody is farther out in its own direction.

Look for: the hull of the tokens shrinks to the polygon; tokens inside choose a corner late; the count stays.
"""

import argparse
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import ConvexHull

import meanformer as mf
from meanformer.plots import style


def draw(run: mf.Trajectory, limits: np.ndarray, out: Path) -> None:
    """The paths with the polygon of the limits, beside the number of clusters over time."""
    with style.style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.6), layout="constrained")
        run.plot(left, title="Paths of the tokens, $z=e^{-t}x$")
        corners = limits[ConvexHull(limits).vertices]
        look = {"facecolor": "none", "edgecolor": style.INK, "linewidth": 1.2, "zorder": 2.5}
        left.fill(*corners.T, label="hull of the limits", **look)
        left.legend(frameon=False, fontsize=8.5, loc="lower right")
        mf.plot_clusters(mf.clusters_along(run), right)
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=100)
        plt.close(figure)


def main() -> None:
    """Run, judge, draw."""
    parser = argparse.ArgumentParser(description="Tokens gather at the corners of a polygon.")
    parser.add_argument("--out", type=Path, default=Path("runs/clusters.png"), help="the picture")
    parser.add_argument("--n", type=int, default=60, help="number of tokens")
    parser.add_argument("--film", type=int, nargs="?", const=60, metavar="FRAMES", help="write a film too, a GIF")
    options = parser.parse_args()

    I = np.eye(2)
    tokens = mf.uniform_ball(d=2, radius=5.0).sample(options.n, key=jax.random.key(0))
    run = mf.flow(mf.Softmax(Q=I, K=I, V=I), tokens, t1=10.0, frame=mf.Rescaled())
    verdict = mf.polytope_limit(run)
    print(run.summary())
    print(f"{verdict.evidence['clusters']} clusters at t = 10")
    print(verdict)
    draw(run, np.asarray(verdict.evidence["limits"]), options.out)
    print(f"picture: {options.out}")
    if options.film is not None:
        film = run.animate(options.out.with_suffix(".gif"), frames=options.film, fps=15, progress=False)
        print(f"film: {film}")


if __name__ == "__main__":
    main()
