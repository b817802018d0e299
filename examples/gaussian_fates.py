r"""A gallery of Gaussian fates: five regimes under four kinds of attention, from the same starts.

    python examples/gaussian_fates.py --out runs/gaussian_fates

prints how many runs had each fate, and draws the covariances in the disc and in the cone of 2 x 2 matrices, the
ellipses and the spectrum of one run, and the ranks of 300 limits. The regimes (MATH e.3, e.4), with $A=K^\top Q$:

- to zero: $K=-Q$ invertible, $V\succ0$;
- to a line: $K=-Q$ of rank one, $V=I$: the line is $\ker Q$;
- two lines: $A+A^\top$ indefinite; a limit $\sigma uu^\top$ has $u^\top Au=0$, and that holds on two lines;
- growth: $A+A^\top\succ0$, $V=I$; softmax blows up, L2 with invertible $K$ and Sinkhorn diverge exponentially;
- both: a random draw, looked for, under which the start decides between a limit and growth.

The two heads have proportional $V$ or proportional $A$, so that on Gaussians $\sum_hV_h\Sigma A_h$ is that of one head
with other matrices.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import meanformer as mf

I = np.eye(2)
SPD = np.array([[1.0, 0.3], [0.3, 0.6]])
ROW = np.array([[1.0, 0.5], [0.0, 0.0]])
SADDLE, TURN = np.diag([1.0, -1.0]), np.array([[0.0, 0.4], [-0.4, 0.0]])

# The first of the seeds 0, 1, 2, ... under which all four kinds have both fates; most draws have one.
BOTH = 3


def regimes() -> dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """(Q, K, V) of two heads in each regime; kinds with one head take the first."""
    Q1, Q2 = np.array([[1.0, 0.3], [0.0, 0.7]]), np.array([[0.5, 0.0], [0.2, 0.6]])
    V = np.array([[-1.0, 0.3], [0.1, 0.8]])
    drawn = np.random.default_rng(BOTH).standard_normal((3, 2, 2))
    return {
        "to zero": [(Q1, -Q1, SPD), (Q2, -Q2, 0.5 * SPD)],
        "to a line": [(ROW, -ROW, I), (0.6 * ROW, -0.6 * ROW, SPD)],
        # The antisymmetric part of A has no effect on which lines are left alone: both heads have the same ones.
        "two lines": [(I, SADDLE, V), (I, 0.5 * SADDLE + TURN, V)],
        "growth": [(I, I + TURN, I), (I, np.array([[0.5, -0.2], [0.1, 0.8]]), I)],
        "both": [tuple(drawn), (drawn[0], 0.3 * drawn[1], drawn[2].T)],
    }


KINDS = {
    "softmax": lambda heads: mf.Softmax(*heads[0]),
    "two heads": lambda heads: mf.MultiHead([mf.Softmax(*head) for head in heads], W=[I, I]),
    "L2": lambda heads: mf.L2(*heads[0]),
    "Sinkhorn": lambda heads: mf.Sinkhorn(*heads[0]),
}


def starts() -> mf.Gaussian:
    """Twelve centred Gaussians with covariances of trace 1: the centre of the disc, five inside, six near its edge."""
    inside = np.linspace(0, 2 * np.pi, 5, endpoint=False) + 0.3
    edge = np.linspace(0, 2 * np.pi, 6, endpoint=False) + 0.1
    radius = np.concatenate([[0.0], np.full(5, 0.55), np.full(6, 0.97)])
    angle = np.concatenate([[0.0], inside, edge])
    x, y = radius * np.cos(angle), radius * np.sin(angle)
    covs = np.stack([np.stack([1 + x, y], axis=1), np.stack([y, 1 - x], axis=1)], axis=1) / 2
    return mf.Gaussian(np.zeros((12, 2)), cov=covs)


def counted(fates: mf.Fates) -> str:
    """The fates in short: e.g. "7 rank 1, 5 blow-up"."""
    words = {"BLEW_UP": "blow-up", "DIVERGED": "diverged", "UNDECIDED": "undecided"}
    names = [words.get(fates[i].kind, f"rank {fates[i].rank}") for i in range(len(fates))]
    return ", ".join(f"{names.count(name)} {name}" for name in sorted(set(names)))


def table(begin: mf.Gaussian, kinds: dict) -> dict[tuple[str, str], str]:
    """How many of the starts have each fate: all regimes of a kind are one batch."""
    n, cells = len(begin.mean), {}
    for kind, make in kinds.items():
        fields = [make(heads) for heads in regimes().values() for _ in range(n)]
        batch = mf.Gaussian(
            np.tile(begin.mean, (len(regimes()), 1)), factor=np.tile(begin.factor, (len(regimes()), 1, 1))
        )
        fates = mf.fates(fields, batch)
        for k, regime in enumerate(regimes()):
            part = {name: a[k * n : (k + 1) * n] for name, a in vars(fates).items() if name != "seconds"}
            cells[kind, regime] = counted(mf.Fates(**part, seconds=fates.seconds))
    width = 2 + max(map(len, cells.values()))
    print(f"{'':<11}" + "".join(f"{regime:<{width}}" for regime in regimes()))
    for kind in kinds:
        print(f"{kind:<11}" + "".join(f"{cells[kind, regime]:<{width}}" for regime in regimes()), flush=True)
    return cells


def gallery(begin: mf.Gaussian, out: Path, kinds: dict) -> dict[tuple[str, str], list[mf.Trajectory]]:
    """The paths of all starts, a panel for each kind and regime, in the disc and in the cone."""
    runs = {
        (kind, regime): [
            mf.flow(make(heads), mf.Gaussian(np.zeros(2), factor=factor), t1=jnp.inf) for factor in begin.factor
        ]
        for kind, make in kinds.items()
        for regime, heads in regimes().items()
    }
    for name, draw, options in (("disc", mf.plot_disc, {}), ("cone", mf.plot_cone, {"projection": "3d"})):
        size = (15, 3 * len(kinds))
        figure, axes = plt.subplots(len(kinds), 5, figsize=size, layout="constrained", subplot_kw=options)
        for ax, ((kind, regime), panel) in zip(axes.flat, runs.items(), strict=True):
            draw(panel, ax, legend=False, title=f"{kind}: {regime}")
            if name == "cone":  # the height of a cone is its own
                ax.set_title(f"{ax.get_title()}, up to tr = {ax.get_zlim()[1]:.2g}")
            ax.set_axis_off()
        handles = legend_of(list(runs.values()), draw)
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
        figure.savefig(out / f"gaussian_{name}.png", dpi=70)
        plt.close(figure)
    return runs


def legend_of(panels: list[list[mf.Trajectory]], draw) -> list:
    """One legend for all panels, without their counts."""
    ax = draw([run for panel in panels for run in panel])
    legend = ax.get_legend()
    handles = legend.legend_handles
    for handle, text in zip(handles, legend.get_texts(), strict=True):
        handle.set_label(text.get_text().split(" (")[0])
    plt.close(ax.figure)
    return handles


def rank_histogram(out: Path, dimensions: tuple[int, ...] = (3, 4, 5), count: int = 100) -> None:
    r"""Ranks of limits for random $Q$ of $\lfloor d/2\rfloor$ rows, $K=-Q$, $V=W^\top W$, $\tau=\sqrt d$."""
    ranks, expected = {}, {}
    for d in dimensions:
        rng = np.random.default_rng(d)
        Q, W, L = (jnp.asarray(rng.standard_normal((count, rows, d))) for rows in (d // 2, d, d))
        # Dividing the exponent by sqrt(d) is dividing Q and K by its root.
        fields = jax.vmap(lambda Q, W: mf.Softmax(Q, -Q, W.T @ W))(Q / d**0.25, W)
        fates = mf.fates(fields, mf.Gaussian(np.zeros((count, d)), factor=L))
        ranks[f"$d={d}$"], expected[f"$d={d}$"] = fates.rank, d - d // 2
        print(f"ranks, d = {d}: {counted(fates)}; theorem: {d - d // 2}", flush=True)
    title = "Ranks of the limits, softmax with $K=-Q$, $V=W^TW$"
    save(mf.plot_ranks(ranks, d=max(dimensions), expected=expected, title=title), out / "gaussian_ranks.png")


def save(ax, path: Path) -> None:
    """Write the picture and forget it."""
    ax.figure.savefig(path, dpi=110)
    plt.close(ax.figure)


def main() -> None:
    """Print the table and draw the pictures."""
    parser = argparse.ArgumentParser(description="Five regimes of Gaussian fates under four kinds of attention.")
    parser.add_argument("--out", type=Path, default=Path("runs/gaussian_fates"), help="folder of the pictures")
    parser.add_argument("--quick", action="store_true", help="softmax only, and fewer runs: some seconds")
    options = parser.parse_args()
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    begin, kinds = starts(), KINDS
    if options.quick:
        begin, kinds = mf.Gaussian(begin.mean[::3], factor=begin.factor[::3]), {"softmax": KINDS["softmax"]}
    table(begin, kinds)
    runs = gallery(begin, out, kinds)
    save(runs["softmax", "to a line"][3].plot(), out / "gaussian_ellipses.png")
    rng = np.random.default_rng(0)
    d = 2 if options.quick else 4  # in the plane the gallery has compiled it
    Q, L = rng.standard_normal((2, d)), rng.standard_normal((d, d))
    run = mf.flow(mf.Softmax(Q, -Q, np.eye(d)), mf.Gaussian(np.zeros(d), factor=L), t1=jnp.inf)
    save(mf.plot_spectrum(run), out / "gaussian_spectrum.png")
    rank_histogram(out, *([(3,), 20] if options.quick else []))
    print(f"The pictures are in {out.resolve()}")


if __name__ == "__main__":
    main()
