"""The way back to the sphere is part of each step, not only of what is saved."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

import meanformer as mf


def test_euler_steps_on_the_sphere_are_layers() -> None:
    I = jnp.eye(3)
    field = mf.Softmax(2 * I, I, jnp.diag(jnp.asarray([3.0, 1.0, -2.0])))
    tokens = mf.uniform_sphere(d=3).sample(6, key=jr.key(3))
    options = {"step": 0.25, "space": mf.Sphere()}
    run = mf.flow(field, tokens, 1.0, solver="euler", save=2, **options)
    network = mf.layers(field, tokens, 4, **options)
    np.testing.assert_allclose(run.final.points, network.final.points, rtol=0, atol=1e-14)
