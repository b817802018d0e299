"""The pictures of the attention pages: the field of seven tokens, and their paths, for every kind in the same view.

python docs/pictures/attention.py --out docs/img
"""

import argparse
from pathlib import Path

import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import small

import meanformer as mf
from meanformer.plots.style import INK, PALETTE, SOFT, style

TOKENS = mf.PointCloud(
    [[1.1, 0.2], [0.7, 0.9], [-0.3, 0.6], [-1.0, 0.3], [-0.6, -0.7], [0.1, -0.4], [0.8, -0.6]]
).with_positions()
VIEW = 3.1
T1 = 1.0
I = jnp.eye(2)
QUERY = 3  # the field of masked attention depends on the position: this many tokens are seen

KINDS = {
    "softmax": ("Softmax(I, I, I, tau=0.5)", mf.Softmax(I, I, I, tau=0.5)),
    "l2": ("L2(I, I, I, tau=0.5)", mf.L2(I, I, I, tau=0.5)),
    "sinkhorn": ("Sinkhorn(I, I, I, eps=0.5)", mf.Sinkhorn(I, I, I, eps=0.5)),
    "sigmoid": ("Sigmoid(I, I, I, tau=0.5)", mf.Sigmoid(I, I, I, tau=0.5)),
    "linear": ("Linear(I, I, I, tau=0.5)", mf.Linear(I, I, I, tau=0.5)),
    "unnormalised": ("Unnormalised(I, I, I, tau=0.5)", mf.Unnormalised(I, I, I, tau=0.5)),
    "hardmax": ("Hardmax(I, I, I)", mf.Hardmax(I, I, I)),
    "multihead": (
        "MultiHead([Softmax, L2])",
        mf.MultiHead([mf.Softmax(I[:1], I[:1], I, tau=0.5), mf.L2(I[1:], I[1:], I, tau=0.5)], W=[0.5 * I, 0.5 * I]),
    ),
    "causal": ("Causal(Softmax(I, I, I, tau=0.5))", mf.Causal(mf.Softmax(I, I, I, tau=0.5))),
}


def field_panel(axes, field, scale, cells=17):
    """Arrows of the field at time 0: direction, and speed as colour (and, up to a limit, length)."""
    ticks = np.linspace(-VIEW, VIEW, cells)[1:-1]
    x = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    masked = isinstance(field, mf.Causal)
    s = np.full(len(x), float(TOKENS.positions[QUERY - 1])) if masked else None
    v = np.asarray(field(TOKENS, x, s=s))
    speed = np.linalg.norm(v, axis=1)
    shown = v * (np.minimum(0.25 + 0.5 * speed, 1.0) / np.maximum(speed, 1e-12))[:, None]
    axes.quiver(
        *x.T, *shown.T, speed, cmap=scale.cmap, norm=scale.norm, angles="xy", pivot="tail", scale_units="xy",
        scale=1 / 0.33, width=0.0055, headwidth=3.6, headlength=4.2, headaxislength=3.8, zorder=2,
    )  # fmt: skip
    seen = np.arange(TOKENS.n) < (QUERY if masked else TOKENS.n)
    points = np.asarray(TOKENS.points)
    axes.scatter(*points[seen].T, s=26, color=INK, edgecolor="white", linewidth=0.8, zorder=4)
    axes.scatter(*points[~seen].T, s=22, facecolor="white", edgecolor=SOFT, linewidth=0.9, zorder=4)


def paths_panel(axes, field):
    """The paths of the tokens from time 0 (open) to T1 (filled), as far as the view goes."""
    fixed = {"solver": "euler", "step": 0.005} if isinstance(field, mf.Hardmax) else {}
    run = mf.flow(field, TOKENS, t1=T1, save=401, stop=mf.RadiusAbove(4 * VIEW), **fixed)
    times = int(np.sum(np.asarray(run.times) <= float(run.outcome.time)))
    paths = np.asarray(run.states.points)[:times]
    for i in range(TOKENS.n):
        colour = PALETTE[i]
        axes.plot(*paths[:, i].T, color=colour, linewidth=1.6, solid_capstyle="round", zorder=3)
        axes.scatter(*paths[0, i], s=24, facecolor="white", edgecolor=colour, linewidth=1.4, zorder=4)
        axes.scatter(*paths[-1, i], s=30, color=colour, edgecolor="white", linewidth=0.8, zorder=5)
        if isinstance(field, mf.Causal):
            axes.annotate(str(i + 1), paths[0, i], (-3, 6), textcoords="offset points", fontsize=8, color=SOFT)
    return float(run.outcome.time)


def framed(axes):
    """The view that all panels share."""
    axes.set(xlim=(-VIEW, VIEW), ylim=(-VIEW, VIEW), aspect="equal", xticks=[-3, 0, 3], yticks=[-3, 0, 3])
    axes.axhline(0, color="#EDEEF0", linewidth=0.8, zorder=0)
    axes.axvline(0, color="#EDEEF0", linewidth=0.8, zorder=0)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(True)


def colour_scale():
    """The colours of speeds, the same in all pictures."""
    cmap = mpl.colors.LinearSegmentedColormap.from_list("speed", ["#C9CCD1", "#4477AA", "#AA3377", "#7A0B3C"])
    return mpl.cm.ScalarMappable(mpl.colors.PowerNorm(0.6, 0, 3, clip=True), cmap)


def one_kind(name, out):
    """The picture of one kind: its field, and the paths."""
    title, field = KINDS[name]
    scale = colour_scale()
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 4.3), layout="constrained")
    field_panel(left, field, scale)
    end = paths_panel(right, field)
    for axes in (left, right):
        framed(axes)
    left.set_title(rf"$\Gamma_\mu(x)$ at $t=0$ for a query that sees {QUERY} tokens" if name == "causal" else
                   r"$\Gamma_\mu(x)$ at $t=0$", fontsize=10)  # fmt: skip
    span = rf"$0\leq t\leq{T1:g}$" if end == T1 else rf"until they blow up, $t\approx{end:.2f}$"
    right.set_title(rf"$\dot x_i=\Gamma_\mu(x_i)$, {span}", fontsize=10)
    bar = figure.colorbar(scale, ax=left, location="left", shrink=0.7, aspect=28, extend="max", ticks=[0, 0.5, 1, 2, 3])
    bar.set_label("speed", fontsize=9)
    bar.outline.set_visible(False)
    figure.suptitle(title, fontsize=10.5, family="DejaVu Sans Mono")
    small.save(figure, out / f"attention_{name}.png", dpi=96)


def all_kinds(out):
    """All kinds in one picture."""
    figure, panels = plt.subplots(3, 3, figsize=(8.6, 9.0), layout="constrained")
    for axes, (name, (_, field)) in zip(panels.flat, KINDS.items(), strict=True):
        field_panel(axes, field, colour_scale(), cells=13)
        paths_panel(axes, field)
        framed(axes)
        axes.set(xticks=[], yticks=[])
        axes.set_title(name, fontsize=10)
    small.save(figure, out / "attention_all.png", dpi=96)


def main():
    """Write all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/img"), help="folder of the pictures")
    out = parser.parse_args().out
    with style(), mpl.rc_context({"figure.facecolor": "white", "axes.facecolor": "white"}):
        for name in KINDS:
            one_kind(name, out)
        all_kinds(out)


if __name__ == "__main__":
    main()
