"""Gaussians: the march through time, the classifier of fates, closed forms."""

from ..mutators import assign, mutant, replace, returns

CLASSIFY = "tests/gaussian/test_classify.py"
CLOSED = "tests/gaussian/test_closed_forms.py"
FATES = "tests/gaussian/test_fates.py"
BATCHES = "tests/gaussian/test_batches.py"
EXTREMES = "tests/gaussian/test_extremes.py"
MATCHED = f"{CLOSED}::test_matched_against_the_integrator"

MUTANTS = [
    # classify.py
    mutant(
        "dead_too_early",
        "an eigenvalue that stays far below the start is called dead",
        ("gaussian/classify.py", assign("ALL_DEAD", "_ / 100")),
        tests=f"{FATES}::test_an_eigenvalue_that_stays_far_below_the_start_is_not_called_dead",
    ),
    mutant(
        "slow_slopes_are_dead",
        "slopes that live, of -0.3 and less, are called dead",
        ("gaussian/classify.py", assign("DEAD", "-0.3")),
        tests=f"{CLASSIFY}::test_slow_slopes_are_neither_dead_nor_alive",
    ),
    mutant(
        "no_certificate",
        "a slope that fades is alive, although a decay may begin late",
        ("gaussian/classify.py:_settled", assign("certain", "_ | True")),
        tests=f"{CLASSIFY}::test_a_slope_that_fades_and_comes_back_is_not_called_alive",
    ),
    mutant(
        "slopes_need_not_fade",
        "an alive slope need not fade",
        ("gaussian/classify.py:_settled", assign("fades", "_ | True")),
        tests=(
            f"{CLASSIFY}::test_a_slope_that_fades_and_comes_back_is_not_called_alive",
            f"{CLASSIFY}::test_a_logarithmic_decay_is_not_called_alive",
        ),
    ),
    mutant(
        "called_at_once",
        "a march is called before it has moved",
        ("gaussian/classify.py:_settled", replace("unit_speed * _a >= SHORTEST", "unit_speed * _a >= 0")),
        tests=f"{CLASSIFY}::test_not_before_a_hundred_units_of_time",
    ),
    mutant(
        "rotation_converges",
        "a covariance that turns for ever has a limit",
        ("gaussian/classify.py:_settled", replace("rank == 0", "rank >= 0")),
        tests=f"{CLASSIFY}::test_a_rotation_is_not_a_limit",
    ),
    mutant(
        "last_look_decides",
        "eigenvalues are judged by the last look, not by a decade of time",
        ("gaussian/classify.py:_settled", assign("inside", "t == now")),
        tests=f"{CLASSIFY}::test_a_slope_that_changes_its_class_is_undecided",
    ),
    mutant(
        "rounding_lives",
        "eigenvalues at round-off are counted",
        ("gaussian/classify.py:_settled", assign("negligible", "_ & False")),
        tests=f"{CLASSIFY}::test_an_eigenvalue_at_round_off_is_not_counted",
    ),
    mutant(
        "exponential_growth_blows_up",
        "growth that is not faster than exponential is a blow-up",
        ("gaussian/classify.py:_grown", replace("mean_exponent > FASTER", "True")),
        ("gaussian/classify.py:_grown", replace("_a[:, -1] > FASTER", "True")),
        tests=f"{CLASSIFY}::test_divergence",
    ),
    mutant(
        "blow_up_a_step_late",
        "the time of blow-up is extrapolated twice as far",
        ("gaussian/classify.py:_grown", replace("_a + 1 / (_b * _c)", "_a + 2 / (_b * _c)")),
        tests=f"{CLASSIFY}::test_blow_up",
    ),
    mutant(
        "error_of_the_time_lost",
        "the spread of the estimates is not told",
        ("gaussian/classify.py:_grown", replace("np.abs(_a - _a[:, -1:])", "np.abs(_a - _a)")),
        tests=f"{CLASSIFY}::test_the_error_of_a_blow_up_time_covers_it",
    ),
    mutant(
        "bounded_fields_blow_up",
        "a field of bounded speed may blow up",
        ("gaussian/classify.py:_grown", replace("_a & ~bounded", "_a", near="faster")),
        tests=f"{CLASSIFY}::test_blow_up",
    ),
    mutant(
        "slopes_without_two",
        "the slopes of the roots of the eigenvalues",
        ("gaussian/classify.py:look", replace("2 * t[:, None] * _a", "t[:, None] * _a")),
        tests=f"{CLASSIFY}::test_a_look_sees_the_slopes_and_the_exponent",
    ),
    mutant(
        "look_without_unit",
        "the size of a state is told in the wrong unit",
        ("gaussian/classify.py:look", replace("_a + 2 * np.log(_b)", "_a + np.log(_b)")),
        tests=f"{CLASSIFY}::test_a_look_does_not_depend_on_the_unit",
    ),
    mutant(
        "limit_of_all",
        "the limit keeps what is dying",
        ("gaussian/classify.py:limit_of", replace("np.where(_a, _b, 0)", "_b")),
        tests=f"{CLASSIFY}::test_the_limit_keeps_what_is_alive",
    ),
    mutant(
        "overflow_is_rest",
        "a speed that is not finite is no motion",
        ("gaussian/classify.py:unit_speed_of", assign("known", "_ | True")),
        tests=f"{EXTREMES}::test_a_speed_that_is_no_number_is_not_at_rest",
    ),
    # units.py, attention/extent.py
    mutant(
        "times_in_own_units",
        "times are told in units of the march",
        ("gaussian/units.py:Units.time", returns("values")),
        tests=f"{EXTREMES}::test_blow_up_times_of_all_sizes",
    ),
    mutant(
        "biases_without_units",
        "biases of values keep their units of length",
        ("gaussian/units.py:_in_units", assign("offset", "slower")),
        tests=f"{EXTREMES}::test_endless_runs_are_homogeneous",
    ),
    mutant(
        "slow_stands_still",
        "a motion that underflows is not refused, however long it lasts",
        ("attention/extent.py:check_speed", assign("far", "False")),
        tests=f"{EXTREMES}::test_speeds_beyond_the_range_are_refused",
    ),
    mutant(
        "gain_without_units",
        "the gain of Sinkhorn attention squares singular values of any size",
        ("attention/closure.py:sinkhorn_gain", assign("u", "jnp.ones((), M.dtype)")),
        tests="tests/attention/test_closure.py::test_saturated_kinds_on_a_wide_gaussian",
    ),
    # march.py, fates.py
    mutant(
        "rejected_steps_count",
        "a step that was rejected moves the clock",
        ("gaussian/march.py:one_step", replace("jnp.where(_a, march.t + _b, march.t)", "march.t + _b")),
        tests=f"{FATES}::test_golden_blow_up_times",
    ),
    mutant(
        "mean_stands_still",
        "a mean that matters does not move",
        ("gaussian/march.py:velocity", replace("_a[:, None]", "0 * _a[:, None]")),
        tests="tests/flows/test_endless.py::test_linear_attention_is_moved_by_its_mean",
    ),
    mutant(
        "no_patience",
        "growth that may change its law is called early",
        ("gaussian/march.py:needs_patience", returns("False")),
        tests=(
            f"{BATCHES}::test_l2_far_below_saturation_does_not_blow_up",
            f"{BATCHES}::test_an_affine_part_hides_a_small_softmax_part",
        ),
    ),
    # closed.py
    mutant(
        "softmax_growth_half",
        "softmax on the line grows half as fast",
        ("gaussian/closed.py:one_dimensional", replace("2 * v * a * variance * t", "v * a * variance * t")),
        tests=f"{CLOSED}::test_golden_on_the_line",
    ),
    mutant(
        "l2_without_newton",
        "small changes under L2 lose their digits",
        ("gaussian/closed.py:_l2_growth", replace("range(3)", "range(0)")),
        tests=f"{CLOSED}::test_line_with_a_weak_query",
    ),
    mutant(
        "sinkhorn_one_newton",
        "Newton's method for Sinkhorn stops after a step",
        ("gaussian/closed.py:_sinkhorn_growth", replace("range(60)", "range(1)")),
        tests=f"{CLOSED}::test_golden_on_the_line",
    ),
    mutant(
        "distance_kernel_on_the_line",
        "Sinkhorn's distance kernel without its 2",
        ("gaussian/closed.py:matched_flow", replace("1 if _a else 2", "1")),
        tests=MATCHED,
    ),
    mutant(
        "matched_mean_power",
        "the mean of matched L2 keys moves with the power of the other sign",
        ("gaussian/closed.py:matched_flow", replace("1 - sign", "1 + sign")),
        tests=MATCHED,
    ),
    mutant(
        "matched_mean_taken_out_once",
        "what a shrinking mean leaves is rounding of its start",
        ("gaussian/closed.py:_moved", replace("range(12)", "range(1)")),
        tests=f"{CLOSED}::test_matched_keys_shrink_what_is_large",
    ),
    mutant(
        "l2_blow_up_of_rounding",
        "a correlation that is 0 but for rounding blows up",
        ("gaussian/closed.py:l2_blowup_time", replace("abs(quotient(_a, _b)) <= known", "False")),
        tests=f"{CLOSED}::test_l2_blows_up_never_where_nothing_but_rounding_says_so",
    ),
    mutant(
        "quotient_in_the_order_given",
        "a quotient of numbers of any size by products that overflow",
        ("_scale.py:quotient", returns("float(np.prod(np.array(above, float)) / np.prod(np.array(below, float)))")),
        tests=f"{CLOSED}::test_l2_blowup_of_any_size",
    ),
    mutant(
        "blow_up_of_half_the_matrix",
        "the blow-up time is that of A, not of A + A^T",
        ("gaussian/closed.py:softmax_blowup_time", replace("A + A.T", "A")),
        tests=f"{CLOSED}::test_golden_softmax_with_identity",
    ),
]
