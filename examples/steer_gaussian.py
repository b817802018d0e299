r"""Differentiate through the flow: find weights that steer a Gaussian to a target.

    python examples/steer_gaussian.py          # runs/steer_gaussian.png

Softmax attention moves a Gaussian by two small equations (MATH e.1, e.2), with $A=K^\top Q$:

    dm/dt = V (m + Sigma A m),      dSigma/dt = V Sigma A Sigma + its transpose.

For a given $Q$ the loss is a function of $K$ and $V$: the squared distance from the target at $t=1$,

    loss(K, V) = W_2(mu_1, target)^2      (Bures-Wasserstein: of means and covariances).

`jax.value_and_grad` goes through the solver, and SciPy's L-BFGS does the rest. ($V$ alone has four entries, and mean
and covariance are five numbers: most targets are then out of reach.)

Look for: the loss over the iterations; the last ellipse on the dashed one.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import meanformer as mf
from meanformer.plots import style

Q = jnp.array([[0.9, 0.2], [-0.3, 0.7]])
START = mf.Gaussian(mean=[1.0, 0.5], cov=[[0.5, 0.1], [0.1, 0.3]])
TARGET = mf.Gaussian(mean=[-0.2, 1.2], cov=[[0.35, -0.2], [-0.2, 0.6]])


def loss(weights: jax.Array) -> jax.Array:
    """The squared distance from the target at t = 1; `weights` are K and V, shape (2, 2, 2)."""
    K, V = weights
    run = mf.flow(mf.Softmax(Q, K, V), START, t1=1.0, save=2)
    return mf.bures_wasserstein(run.final, TARGET) ** 2


def steer(iterations: int) -> tuple[np.ndarray, list[float]]:
    """The weights, and the loss after each iteration, from K = I and V = 0."""
    begin = np.stack([np.eye(2), np.zeros((2, 2))])
    compiled = jax.jit(jax.value_and_grad(loss))

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = compiled(flat.reshape(2, 2, 2))
        return float(value), np.asarray(gradient).ravel()

    values = [value_and_gradient(begin.ravel())[0]]
    keep = {"callback": lambda intermediate_result: values.append(float(intermediate_result.fun))}
    limits = {"maxiter": iterations, "ftol": 0.0, "gtol": 1e-10}
    found = minimize(value_and_gradient, begin.ravel(), jac=True, method="L-BFGS-B", options=limits, **keep)
    return found.x.reshape(2, 2, 2), values


def main() -> None:
    """Steer, and draw the way."""
    parser = argparse.ArgumentParser(description="Steer a Gaussian to a target.")
    parser.add_argument("--out", type=Path, default=Path("runs/steer_gaussian.png"), help="the picture")
    parser.add_argument("--iterations", type=int, default=40, help="of L-BFGS, at the most")
    options = parser.parse_args()

    (K, V), values = steer(options.iterations)
    run = mf.flow(mf.Softmax(Q, K, V), START, t1=1.0)
    print(f"loss {values[0]:.4f} at the start, {values[-1]:.1e} after {len(values) - 1} iterations")
    print(f"V = {np.array2string(V, precision=4, prefix='V = ')}")
    print(f"mean {np.asarray(run.final.mean).round(4)}, target {np.asarray(TARGET.mean)}")

    turn = np.linspace(0, 2 * np.pi, 200)
    edge = np.asarray(TARGET.mean)[:, None] + 2 * np.asarray(TARGET.factor) @ np.stack([np.cos(turn), np.sin(turn)])
    with style.style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 4.4), layout="constrained", width_ratios=[1.15, 1])
        run.plot(left, mean=True, title="The way of the Gaussian under the weights found")
        left.plot(*edge, "--", color=style.PALETTE[1], linewidth=1.8, zorder=5)
        left.annotate("target", edge[:, 60], (-4, 10), textcoords="offset points", color=style.PALETTE[1], ha="right")
        right.semilogy(values, "o-", markersize=3, color=style.PALETTE[0], linewidth=1.8)
        right.set(xlabel="iteration of L-BFGS", ylabel=r"$W_2(\mu_1,\mathrm{target})^2$", title="The loss")
        options.out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.out, dpi=100)
        plt.close(figure)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
