r"""A10: a transformer of depth $L$ is Euler's method for the flow, with an error of order $1/L$."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import meanformer as mf

from ....plots import style
from ..base import Budget, Found, Item, Picture, Row
from .bounds import KINDS, TIMES, Kind, run

# A = K^T Q is not symmetric.
MATRICES = ([[0.6, -0.2], [0.1, 0.4]], [[0.5, 0.3], [-0.4, 0.7]], [[0.8, 0.2], [-0.1, 0.6]])
T1 = float(TIMES[-1])


def start(seed: int) -> mf.PointCloud:
    """Tokens in the unit disc; as many as in A8, whose compiled programs serve here too."""
    return mf.PointCloud(jax.random.ball(jax.random.key(seed), 2, shape=(8,))).with_positions()


def field_of(kind: Kind) -> Any:
    """A field of this kind with the matrices above, in turn."""
    matrices = [jnp.asarray(MATRICES[k % 3]) for k in range(kind.matrices)]
    return kind.make(*matrices)


def euler_errors(kind: Kind, depths: tuple[int, ...], seed: int) -> np.ndarray:
    r"""$W_2$ between the tokens after $L$ layers of step $t_1/L$ and the flow at $t_1$."""
    field, tokens = field_of(kind), start(seed)
    exact = run(field, tokens).final
    # With observers, even none, layers are compiled one by one: one program for all depths.
    ends = [mf.layers(field, tokens, L, step=T1 / L, save="final", observers={}, progress=False).final for L in depths]
    return np.array([mf.wasserstein(end, exact, 2) for end in ends])


def order_row(name: str, depths: tuple[int, ...], errors: np.ndarray) -> Row:
    """Whether the order, at the two largest depths, is 1."""
    order = float(-np.log(errors[-1] / errors[-2]) / np.log(depths[-1] / depths[-2]))
    verdict = "holds" if abs(order - 1) <= 0.05 else "fails"
    why = f"from L = {depths[-2]} to {depths[-1]}, where the error is {errors[-1]:.1e}"
    return Row(rf"{name}: order of the error in $1/L$, in $W_2$", 1.0, order, "0.05", verdict, why)


def compute(budget: Budget) -> Found:
    """Errors at growing depth for several kinds."""
    names = budget.choose(("softmax", "masked softmax"), [kind.name for kind in KINDS])
    depths = budget.choose((8, 16, 32, 64, 128), (8, 16, 32, 64, 128, 256, 512))
    kinds = [kind for kind in KINDS if kind.name in names]
    found = {}
    for k, kind in enumerate(kinds):
        budget.say(k / len(kinds), kind.name)
        found[kind.name] = euler_errors(kind, depths, budget.seed)
    rows = [order_row(name, depths, errors) for name, errors in found.items()]
    caption = (
        r"The distance $W_2$ between the tokens after $L$ layers of step $t_1/L$ and the flow at "
        f"$t_1={T1:g}$, over $L$: all lines have the slope of the dotted one, $-1$."
    )
    return Found(rows, [Picture("depth", depth_figure(depths, found), caption)])


def depth_figure(depths: tuple[int, ...], found: dict[str, np.ndarray]) -> Figure:
    """Errors over depth, both logarithmic."""
    with style.style():
        figure = Figure(figsize=(6.8, 4.4), dpi=style.DPI, layout="constrained")
        ax = figure.add_subplot()
        for (name, errors), colour in zip(found.items(), style.PALETTE, strict=False):
            look: dict[str, Any] = {"markerfacecolor": style.PAPER, "markeredgewidth": 1.4, "markersize": 5}
            ax.plot(depths, errors, "o-", color=colour, linewidth=1.4, label=name, **look)
        lowest = min(float((errors * depths).min()) for errors in found.values())
        ax.plot(depths, 0.6 * lowest / np.array(depths), ":", color=style.SOFT, linewidth=1.4, label="$1/L$")
        ax.set(xscale="log", yscale="log", xlabel="depth $L$", ylabel=rf"$W_2$ to the flow at $t={T1:g}$")
        ax.set_xticks(depths, [str(L) for L in depths])
        ax.minorticks_off()
        ax.legend(frameon=False, fontsize=8.5)
        ax.set_title("Layers approach the flow like $1/L$")
    return figure


ITEM = Item(
    id="A10",
    title="Depth: residual layers approach the flow",
    setting=r"$x^{\ell+1}=x^\ell+\frac{t_1}L\,\Gamma_{\mu^\ell}(x^\ell)$, $\ell<L$, against $\dot x=\Gamma_\mu(x)$ at "
    rf"$t_1={T1:g}$: 8 tokens in the unit disc, fixed $Q,K,V$ with $A=K^\top Q$ not symmetric.",
    compute=compute,
    minutes=(0.1, 0.2),
)
