"""The order of each solver, measured with constant steps against a run at the limit of double precision."""

import jax.numpy as jnp
import numpy as np
import pytest
from _cases import cloud, weights

import meanformer as mf

# Steps, with errors between 1e-1 and 1e-13, and the window of the mean slope. The leading error of Tsit5 is so
# small that at these steps the next one is seen too: a slope between 5 and 6.
ORDERS = {
    "euler": (1, [1 / 64, 1 / 128, 1 / 256], (0.97, 1.03)),
    "heun": (2, [1 / 32, 1 / 64, 1 / 128], (1.95, 2.05)),
    "bosh3": (3, [1 / 16, 1 / 32, 1 / 64], (2.95, 3.05)),
    "tsit5": (5, [1 / 8, 1 / 16, 1 / 32], (4.8, 5.8)),
    "dopri8": (8, [1 / 2, 1 / 4, 1 / 8], (7.5, 8.5)),
}
FIELD = mf.Softmax(*(1.5 * M for M in weights(2, d=2)))
TOKENS = cloud(2, n=6, d=2)


@pytest.fixture(scope="module")
def exact() -> np.ndarray:
    return np.asarray(mf.flow(FIELD, TOKENS, 2.0, solver="dopri8", rtol=2e-14, atol=1e-14, save=2).final.points)


@pytest.mark.parametrize("solver", ORDERS)
def test_order(solver: str, exact: np.ndarray) -> None:
    order, steps, (low, high) = ORDERS[solver]
    errors = []
    for step in steps:
        run = mf.flow(FIELD, TOKENS, 2.0, solver=solver, step=step, save=2)
        assert run.stats["steps"] == round(2 / step) and run.stats["rejected"] == 0
        errors.append(float(jnp.abs(run.final.points - exact).max()))
    measured = float(np.log2(errors[0] / errors[-1]) / np.log2(steps[0] / steps[-1]))
    print(f"order of {solver:<6} {order}: measured {measured:.2f}, errors {[f'{e:.1e}' for e in errors]}")
    assert low <= measured <= high


def test_error_follows_the_tolerance(exact: np.ndarray) -> None:
    errors = []
    for rtol in (1e-4, 1e-6, 1e-8, 1e-10):
        run = mf.flow(FIELD, TOKENS, 2.0, rtol=rtol, atol=rtol * 1e-3, save=2)
        errors.append(float(jnp.abs(run.final.points - exact).max() / np.abs(exact).max()))
        assert errors[-1] <= 10 * rtol
    assert errors[-1] < 1e-4 * errors[0]
