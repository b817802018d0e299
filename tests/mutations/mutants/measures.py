"""Clouds, densities, laws, and the spaces they live in."""

from ..mutators import mutant, replace, returns

SPHERE = "tests/flows/test_sphere_flow.py"

MUTANTS = [
    mutant(
        "rounding_of_a_covariance_refused",
        "a covariance with a negative eigenvalue that is rounding is refused",
        ("measures/gaussian.py:_check_covariance", replace("smallest < -rounding", "smallest < 0")),
        tests="tests/measures/test_gaussians.py::test_covariances_that_were_computed_are_accepted",
    ),
    mutant(
        "indices_clamped",
        "a member beyond the end of a batch is the last one",
        ("_indexing.py:member", replace("-size <= number < size", "True")),
        tests="tests/measures/test_indexing.py",
    ),
    mutant(
        "resample_unweighted",
        "resampling ignores the weights",
        ("measures/cloud.py:PointCloud.resample", replace("self.weights", "jnp.full_like(self.weights, 1 / self.n)")),
        tests="tests/measures/test_clouds.py::test_resample",
    ),
    mutant(
        "ball_covariance",
        "covariance of the ball: R^2/d for R^2/(d+2)",
        ("measures/laws.py:UniformBall.factor", replace("_a + 2", "_a")),
        tests="tests/measures/test_laws.py",
    ),
    mutant(
        "nearest_cell",
        "tokens go to one cell whole",
        ("measures/density.py:cell_shares", replace("np.clip(_a, 0, 1)", "np.round(np.clip(_a, 0, 1))")),
        tests="tests/measures/test_densities.py::test_tokens_keep_mass_mean_and_nearly_their_spread",
    ),
    mutant(
        "no_retraction", "sphere: no way back after a step", ("spaces.py:Sphere.retract", returns("x")), tests=SPHERE
    ),
    mutant(
        "no_projection", "sphere: velocities are not tangent", ("spaces.py:Sphere.project", returns("v")), tests=SPHERE
    ),
    mutant(
        "covariance_in_given_units",
        "tokens are squared as they are: covariances of small tokens are 0, and their ranks are lost",
        ("measures/cloud.py:_over_units", replace("_a / units", "_a * 1", near="counts")),
        ("measures/cloud.py:_by_coordinates", replace("large * small", "large / large")),
        tests="tests/test_scale.py::test_numbers_follow_the_units",
    ),
    mutant(
        "masked_numbers_are_read",
        "what a masked array hides is read as data",
        ("_reading.py:_refuse_masked", replace("_a and np.ma.is_masked(_b)", "False")),
        tests="tests/test_reading.py::test_refused_in_words",
    ),
    mutant(
        "byte_order_kept",
        "arrays of the other byte order go to JAX as they are",
        ("_reading.py:read", replace("array.astype(_a)", "array")),
        tests="tests/test_reading.py::test_read_exactly",
    ),
]
