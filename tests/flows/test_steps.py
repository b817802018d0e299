"""What belongs to a step: the way back to the sphere, and an end at each break."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

import meanformer as mf


def test_euler_steps_on_the_sphere_are_layers() -> None:
    """The way back is part of each step, not only of what is saved."""
    I = jnp.eye(3)
    field = mf.Softmax(2 * I, I, jnp.diag(jnp.asarray([3.0, 1.0, -2.0])))
    tokens = mf.uniform_sphere(d=3).sample(6, key=jr.key(3))
    options = {"step": 0.25, "space": mf.Sphere()}
    run = mf.flow(field, tokens, 1.0, solver="euler", save=2, **options)
    network = mf.layers(field, tokens, 4, **options)
    np.testing.assert_allclose(run.final.points, network.final.points, rtol=0, atol=1e-14)


def test_constant_steps_end_at_breaks() -> None:
    """Constant velocities are integrated exactly, unless a step sees two of them: 0.4 is no multiple of the step."""
    still = np.zeros((2, 2))
    field = mf.Piecewise([mf.Affine(still, [1.0, 0.0]), mf.Affine(still, [0.0, 1.0])], [0.4])
    run = mf.flow(field, mf.PointCloud(still), 1.0, solver="euler", step=0.3, save=2)
    np.testing.assert_allclose(run.final.points, [[0.4, 0.6]] * 2, rtol=1e-14)
