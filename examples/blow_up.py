r"""A Gaussian blows up in finite time; tokens drawn from it do not.

    python examples/blow_up.py                 # runs/blow_up.png

Softmax attention keeps a Gaussian Gaussian. With $V=I$ and $A=K^\top Q$ its covariance is known (MATH e.3):

    Sigma(t) = (Sigma_0^{-1} - t (A + A^T))^{-1},
    t* = 1 / lambda_max(Sigma_0^{1/2} (A + A^T) Sigma_0^{1/2})      if that is positive, else there is no blow-up.

`mf.flow(..., t1=inf)` knows nothing of the formula: it integrates, sees the speed grow with the trace, and reports
$t^*$. Any finite set of tokens stays inside the ball of radius $e^{\|V\|t}R(0)$ (MATH d.1), so that it goes on beyond
$t^*$: the Gaussian is their limit as $n\to\infty$ at each $t<t^*$, but not uniformly in time (MATH d.5).

Look for: circles on the line up to $t^*$; more tokens follow longer; all of them leave it before $t^*$.
"""

import argparse
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import meanformer as mf
from meanformer.plots import style


def main() -> None:
    """Detect the blow-up, compare it with the formula, and let tokens go beyond."""
    parser = argparse.ArgumentParser(description="A Gaussian blows up; its tokens do not.")
    parser.add_argument("--out", type=Path, default=Path("runs/blow_up.png"), help="the picture")
    parser.add_argument("--n", type=int, nargs="+", default=[100, 400, 1600], help="numbers of tokens")
    options = parser.parse_args()

    g = mf.Gaussian(mean=np.zeros(2), cov=[[0.4, 0.1], [0.1, 0.2]])
    field = mf.Softmax(Q=[[1.0, 0.3], [0.0, 0.8]], K=[[0.9, -0.2], [0.4, 0.7]], V=np.eye(2))
    exact = mf.softmax_blowup_time(field.A, g)
    run = mf.flow(field, g, t1=np.inf)
    fate = run.fate
    assert fate is not None and fate.kind == "BLEW_UP"
    print(fate)
    print(f"t* detected {fate.time:.9f}, exact {exact:.9f}, relative error {abs(fate.time / exact - 1):.1e}")

    times = exact * np.linspace(0, 1, 400, endpoint=False)
    traces = [np.trace(mf.softmax_identity_flow(field.A, g, t=t).covariance) for t in times]
    seen = np.asarray(run.times) < exact
    found = np.trace(np.asarray(run.states.covariance)[seen], axis1=1, axis2=2)
    dots = {"color": style.INK, "markerfacecolor": "none", "markersize": 5}
    with style.style():
        figure, ax = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
        ax.plot(times, traces, color=style.INK, linewidth=1.4, label="Gaussian, closed form")
        ax.plot(np.asarray(run.times)[seen], found, "o", label="Gaussian, integrated", **dots)
        for n, colour in zip(options.n, (style.PALETTE[k] for k in (5, 0, 4, 2)), strict=False):
            tokens = g.sample(n, key=jax.random.key(0))
            cloud = mf.flow(field, tokens, t1=1.6 * exact, save=81, progress=False)
            trace = np.trace(np.asarray(cloud.states.covariance), axis1=1, axis2=2)
            bound = mf.support_bound(field, tokens, t1=1.6 * exact)
            print(f"{n} tokens at 1.6 t*: trace {trace[-1]:.3g}, radius {cloud.final.radius:.3g} <= {bound:.3g}")
            ax.plot(cloud.times, trace, color=colour, linewidth=1.8, label=f"{n} tokens")
        ax.axvline(exact, color=style.PALETTE[1], linestyle=(0, (4, 2)), linewidth=1.4, label=f"$t^*={exact:.4f}$")
        ax.set(yscale="log", ylim=(0.3, 300), xlabel="time $t$", ylabel=r"$\mathrm{tr}\,\Sigma(t)$")
        ax.set_title("Softmax, $V=I$: the Gaussian blows up at $t^*$, tokens do not")
        ax.legend(frameon=False, fontsize=8.5, loc="upper left")
        options.out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.out, dpi=100)
        plt.close(figure)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
