"""Attention kinds, masks, combinations of fields, Sinkhorn's problem."""

from ..mutators import assign, mutant, replace, returns

FIELDS = "tests/attention/test_golden_fields.py"
COMBINATIONS = "tests/attention/test_combinations.py"
CONVENTIONS = "tests/attention/test_conventions.py"
SOLVER = "tests/attention/test_sinkhorn_solver.py"
PLANNER = "tests/reduce/test_planner.py"

MUTANTS = [
    mutant(
        "transposed",
        "A transposed: queries and keys swapped",
        ("attention/kernel.py:Projections.queries", returns("_affine(self.K, None, x)")),
        ("attention/kernel.py:Projections.keys", returns("_affine(self.Q, None, y)")),
        tests=f"{FIELDS}::test_velocity",
    ),
    mutant(
        "value_bias_dropped",
        "the value bias dropped",
        ("attention/kernel.py:Projections.values", replace("self.value_bias", "None")),
        tests=f"{COMBINATIONS}::test_biases_are_a_constant_coordinate",
    ),
    mutant(
        "tau_on_one_factor",
        "L2: tau divides Q alone",
        ("attention/l2.py:L2.features", returns("(self.maps.queries(x) / self.tau, self.maps.keys(y))")),
        tests=f"{FIELDS}::test_velocity[l2]",
    ),
    mutant(
        "linear_without_tau",
        "linear attention forgets tau",
        ("attention/linear.py:Linear.mix", replace("_a / self.tau", "_a")),
        tests=f"{FIELDS}::test_velocity[linear]",
    ),
    mutant(
        "sigmoid_per_token",
        "sigmoid per token: + log n for - log n",
        ("attention/sigmoid.py:Sigmoid.mix", replace("self.bias - _a", "self.bias + _a")),
        tests=f"{CONVENTIONS}::test_sigmoid_per_token_is_the_sum_of_networks",
    ),
    mutant(
        "unnormalised_normalised",
        "unnormalised attention without its partition function",
        ("attention/unnormalised.py:Unnormalised.mix", replace("_a * jnp.exp(_)[:, None]", "_a")),
        tests=f"{FIELDS}::test_velocity[usa]",
    ),
    mutant(
        "summed_weights_ignored",
        "weights ignored by the kinds that sum",
        ("attention/kernel.py:summed_tokens", replace("mu.weights", "jnp.full_like(mu.weights, 1 / mu.n)")),
        tests=f"{FIELDS}::test_velocity[sigmoid]",
    ),
    mutant(
        "lipschitz_half",
        "the exponent of L_mu is half as large",
        ("attention/softmax.py:Softmax.lipschitz", replace("grown(_a, _b)", "grown(_a, _b / 2)")),
        tests="tests/diagnostics/test_lipschitz.py::test_the_table_of_math",
    ),
    mutant(
        "product_of_zero_and_infinity",
        "a constant that is 0 times one beyond the range is no number",
        ("_scale.py:times", replace("jnp.where(none & jnp.isinf(m), 1, m)", "m")),
        tests="tests/diagnostics/test_lipschitz.py::test_what_is_beyond_the_range_times_0",
    ),
    mutant(
        "zero_grown_without_bound",
        "0 grows to what is no number",
        ("_scale.py:grown", replace("xp.minimum(exponent, most)", "exponent")),
        tests="tests/diagnostics/test_support_bound.py::test_a_cloud_at_the_origin_stays_there",
    ),
    # Masks and combinations
    mutant(
        "prefix_ignored",
        "Causal(prefix=True) ignored",
        ("attention/kernel.py:prefix_divided", replace("not view.prefix", "True")),
        tests=f"{COMBINATIONS}::test_prefix_option",
    ),
    mutant(
        "prefix_mass_strict",
        "the mass seen leaves out the token itself",
        ("attention/kernel.py:mass_seen", replace("'right'", "'left'")),
        tests=f"{COMBINATIONS}::test_prefix_option",
    ),
    mutant(
        "output_transposed",
        "W transposed",
        ("attention/heads.py:MultiHead.evaluate.one", replace("W.T", "W.reshape(W.shape[::-1])")),
        tests=f"{FIELDS}::test_multihead",
    ),
    mutant(
        "network_heads_by_rows",
        "the output matrix of a network cut by rows",
        ("attention/heads.py:MultiHead.from_network", replace("O.T", "O")),
        tests=f"{COMBINATIONS}::test_heads_of_a_network",
    ),
    mutant(
        "norm_of_query_only",
        "pre-norm: the context is not normalised",
        ("attention/norm.py:PreNorm", replace("mu.with_points(_)", "mu", nth=0)),
        tests=f"{COMBINATIONS}::test_pre_and_post_norm",
    ),
    mutant(
        "break_before",
        "a break belongs to the piece before it",
        ("attention/schedule.py:Piecewise.index", replace("'right'", "'left'")),
        tests=f"{COMBINATIONS}::test_piecewise",
    ),
    mutant(
        "plan_unchecked",
        "a plan that misses its accuracy on the sample is used",
        ("attention/planned.py:planned", replace("error <= _a", "error <= 1e9")),
        tests=f"{PLANNER}::test_an_accuracy_that_cannot_be_kept_is_not_promised",
    ),
    # Sinkhorn
    mutant(
        "sinkhorn_eps",
        "Sinkhorn: both factors divided by eps, not by its root",
        ("attention/sinkhorn.py:Sinkhorn.features", replace("jnp.sqrt(_a)", "_a")),
        tests=f"{FIELDS}::test_velocity[sinkhorn_dot]",
    ),
    mutant(
        "sinkhorn_kernels_swapped",
        "Sinkhorn: the distance kernel has the logits of the dot kernel",
        ("attention/sinkhorn.py:Sinkhorn.logit", returns("dot")),
        tests=f"{FIELDS}::test_velocity[sinkhorn_l2]",
    ),
    mutant(
        "sinkhorn_matrix",
        "effective matrix of the distance kernel without its 2",
        ("attention/sinkhorn.py:Sinkhorn.B", replace("2", "1")),
        tests=f"{SOLVER}::test_effective_matrix",
    ),
    mutant(
        "sinkhorn_mask_strict",
        "masked Sinkhorn: a token does not see itself",
        ("attention/sinkhorn.py:Sinkhorn._prefix_mix.one", replace("_a <= _b", "_a < _b")),
        tests=f"{COMBINATIONS}::test_causal_sinkhorn_is_sinkhorn_on_what_is_seen",
    ),
    mutant(
        "sinkhorn_prefix_not_solved",
        "masked Sinkhorn: the guess of one prefix is kept as the solution of the next",
        ("attention/sinkhorn.py:Sinkhorn._prefix_mix.one", replace("solution.g", "guess", nth=0)),
        tests=f"{FIELDS}::test_causal",
    ),
    mutant(
        "implicit_derivative",
        "the derivative of the potentials dropped",
        ("attention/potentials.py:_root_jvp", assign("g_dot", "0 * _")),
        tests=f"{SOLVER}::test_derivative_both_modes",
    ),
    mutant(
        "sinkhorn_never_stalls",
        "a Sinkhorn problem that was not solved counts as solved",
        (
            "attention/potentials.py:solve",
            replace("Potentials(_a, _b, *report)", "Potentials(_a, _b, *report[:-1], jnp.ones_like(report[-1]))"),
        ),
        tests=f"{SOLVER}::test_early_stop_is_reported_and_rows_are_probabilities",
    ),
    mutant(
        "sinkhorn_not_watched",
        "a run forgets a Sinkhorn problem that was not solved",
        ("attention/solved.py:Watch.after", replace("self.solved & found.solved", "self.solved")),
        tests="tests/flows/test_flow_outcomes.py::test_sinkhorn_stalled_is_reported",
    ),
    mutant(
        "sinkhorn_without_ladder",
        "hard Sinkhorn problems are not solved down a ladder of temperatures",
        ("attention/iteration.py:Machine.decide", replace("last & ~(best <= tol)", "last & ~last")),
        tests=f"{SOLVER}::test_what_needs_the_ladder",
    ),
]
