"""Runs as told: a `Trajectory` from states that were computed elsewhere, or made up."""

import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import meanformer as mf
from meanformer.flows.frames import Original
from meanformer.flows.particles import ParticleSystem
from meanformer.flows.trajectory import Trajectory
from meanformer.outcome import Ending, Outcome
from meanformer.spaces import Euclidean


def told(field, times, points, weights=None, space=None, discrete=False):
    """The run in the original frame with these `points` of shape (times, n, d)."""
    points, times = jnp.asarray(points, float), jnp.asarray(times, float)
    system = ParticleSystem(field, mf.PointCloud(points[0], weights), space or Euclidean(), Original())
    outcome = Outcome(jnp.asarray(int(Ending.REACHED)), times[-1])
    return Trajectory(times, (points, None), (points[-1], None), outcome, {"steps": 0}, system, discrete)


def solved(A, V, x, times, told_field=None):
    r"""Softmax $\dot x=VPx$ by scipy in the frame $z=e^{-tV}x$, for a diagonal V, told as a run.

    `told_field` lies about the field that moved the tokens.
    """
    A, rates = np.asarray(A, float), np.diag(V)
    assert np.array_equal(V, np.diag(rates))

    def velocity(t, y):
        z = y.reshape(x.shape)
        now = np.exp(t * rates) * z
        c = now @ A.T @ now.T
        P = np.exp(c - c.max(axis=1, keepdims=True))
        return (((P / P.sum(axis=1, keepdims=True)) @ z - z) * rates).ravel()

    run = solve_ivp(velocity, (0, times[-1]), x.ravel(), t_eval=times, rtol=1e-8, atol=1e-10)
    assert run.success
    z = run.y.T.reshape(len(times), *x.shape)
    points = np.exp(np.asarray(times)[:, None] * rates)[:, None, :] * z
    return told(told_field or mf.Softmax(np.eye(len(A)), A.T, V), times, points)
