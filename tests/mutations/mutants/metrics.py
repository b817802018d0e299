"""Distances between measures."""

from ..mutators import assign, mutant, replace, returns

TRANSPORT = "tests/metrics/test_wasserstein.py"
CONDITIONAL = "tests/metrics/test_conditional.py"
ENTROPIC = "tests/metrics/test_entropic.py"
BURES = "tests/metrics/test_bures.py"

MUTANTS = [
    # wasserstein.py
    mutant(
        "power_not_taken_back",
        "W_p^p in the place of W_p",
        ("metrics/wasserstein.py:power_mean", replace("_a ** (1 / p)", "_a")),
        tests=f"{TRANSPORT}::test_golden",
    ),
    mutant(
        "cost_without_power",
        "plans are optimal for p = 1, whatever p",
        ("metrics/plan.py:_costs", assign("cost", "1", near="p")),
        tests=f"{TRANSPORT}::test_agrees_with_linear_programming",
    ),
    mutant(
        "quantiles_unweighted",
        "the coupling on a line takes all weights as equal",
        ("metrics/wasserstein.py:_quantiles", replace("cells.even", "True")),
        tests=f"{TRANSPORT}::test_agrees_with_linear_programming",
    ),
    mutant(
        "sums_in_any_order",
        "levels of the two measures differ by rounding",
        ("metrics/wasserstein.py:_quantiles", replace("np.lexsort(_)", "np.argsort(x, kind='stable')")),
        ("metrics/wasserstein.py:_quantiles", replace("np.longdouble", "np.float64")),
        tests=f"{TRANSPORT}::test_the_order_of_tokens_far_apart_changes_nothing",
    ),
    mutant(
        "squares_overflow",
        "large tokens are not scaled",
        ("metrics/wasserstein.py:scaled", returns("(one, two, 0)")),
        tests=f"{TRANSPORT}::test_large_tokens_do_not_overflow",
    ),
    mutant(
        "plan_not_certified",
        "a plan that is not optimal is used",
        ("metrics/plan.py:optimal_plan", replace("_a <= DUALITY_GAP or _b == 0", "True")),
        tests=f"{TRANSPORT}::test_a_plan_that_is_not_optimal_is_an_error",
    ),
    mutant(
        "crumbs_carried_far",
        "what rounding leaves over of a weight counts as mass",
        ("metrics/plan.py:_without_crumbs", returns("plan")),
        tests=f"{TRANSPORT}::test_a_token_far_away_that_stays_changes_nothing",
    ),
    mutant(
        "squares_of_lengths_underflow",
        "lengths are roots of sums of squares, however small",
        ("metrics/plan.py:distances", replace("_a > ROOT_OF_TINY / _b", "True")),
        tests=f"{TRANSPORT}::test_lengths_whose_squares_underflow",
    ),
    mutant(
        "a_quarter_of_the_circle",
        "directions of the plane do not go around",
        ("metrics/wasserstein.py:_directions", replace("np.pi * _a / _b", "np.pi * _a / _b / 2")),
        tests=f"{TRANSPORT}::test_sliced_in_the_plane",
    ),
    # conditional.py
    mutant(
        "positions_may_differ",
        "measures with different laws of positions are compared",
        ("metrics/conditional.py:conditional_wasserstein", replace("_a.max() > rounding", "False")),
        tests=f"{CONDITIONAL}::test_infinite_between_different_laws_of_positions",
    ),
    mutant(
        "groups_in_order_of_tokens",
        "tokens are matched by their number, not by their position",
        ("metrics/conditional.py:_groups", replace("np.argsort(group, **_)", "np.arange(len(group))")),
        tests=CONDITIONAL,
    ),
    # entropic.py
    mutant(
        "divergence_not_debiased",
        "the divergence without one of its self-terms",
        ("metrics/entropic.py:sinkhorn_divergence", replace("(_a + _b) / 2", "_a / 2")),
        tests=f"{ENTROPIC}::test_vanishes_between_equal_measures_only",
    ),
    mutant(
        "units_of_eps",
        "points are divided by eps, not by its root",
        ("metrics/entropic.py:_centred", replace("jnp.sqrt(eps)", "eps", nth=0)),
        ("metrics/entropic.py:_centred", replace("jnp.sqrt(eps)", "eps", nth=0)),
        tests=f"{ENTROPIC}::test_agrees_with_pot",
    ),
    mutant(
        "means_forgotten",
        "the distance of the means is left out",
        ("metrics/entropic.py:_cost", replace("jnp.sum(_a) + _b", "_b")),
        tests=f"{ENTROPIC}::test_translation_and_scale",
    ),
    mutant(
        "silently_unconverged",
        "sweeps that did not suffice count as converged",
        ("metrics/entropic.py:_potential", replace("_a <= jnp.minimum(_, WRONG)", "_a <= 1e9")),
        tests=f"{ENTROPIC}::test_is_never_silently_unconverged",
    ),
    mutant(
        "no_ladder",
        "small temperatures are attacked at once",
        ("metrics/entropic.py:_solve", assign("hottest", "1.0 + 0 * _")),
        tests=f"{ENTROPIC}::test_hard_problems_converge",
    ),
    # bures.py
    mutant(
        "factors_not_aligned",
        "factors are compared as they are",
        ("metrics/bures.py:_distance", replace("_a - jnp.einsum(*_b)", "_a - L2")),
        tests=f"{BURES}::test_zero_between_two_factors_of_one_covariance",
    ),
    mutant(
        "rotation_without_derivative",
        "the rotation of the geodesic is held fixed",
        ("metrics/bures.py:_orthogonal_factor_derivative", assign("turn", "jnp.zeros_like(M)")),
        tests=f"{BURES}::test_derivative_of_the_geodesic",
    ),
    mutant(
        "geodesic_not_aligned",
        "the geodesic between factors as they are",
        ("metrics/bures.py:bures_geodesic", replace("_a @ R", "_a")),
        tests=f"{BURES}::test_geodesics_have_constant_speed",
    ),
]
