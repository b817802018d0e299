"""Sums over tokens: logits, weights, blocks, masks, grids, plans."""

from ..mutators import assign, mutant, replace, returns

FIELDS = "tests/attention/test_golden_fields.py"
COMBINATIONS = "tests/attention/test_combinations.py"
CONVENTIONS = "tests/attention/test_conventions.py"
FAST_FIELDS = "tests/attention/test_fast_fields.py"
SUMS = "tests/reduce/test_exact_sums.py"
BRANCHES = "tests/reduce/test_exact_branches.py"
GRID = "tests/reduce/test_grid.py"
PRUNED = "tests/reduce/test_pruned_blocks.py"
PLANNER = "tests/reduce/test_planner.py"
CLOUD = f"{GRID}::test_error_is_below_the_bound_for_every_cloud"
BOTH = f"{BRANCHES}::test_both_branches_on_both_sides_of_the_limit"

MUTANTS = [
    # Logits and weights
    mutant(
        "half_distance",
        "factor 2 dropped: half the squared distance",
        ("reduce/reducers.py:minus_squared_distance", replace("-sum(_a)", "-0.5 * sum(_a)")),
        tests=f"{FIELDS}::test_velocity[l2]",
    ),
    mutant(
        "half_distance_large_k",
        "the same for key dimensions above 16",
        ("reduce/reducers.py:minus_squared_distance", replace("-jnp.sum(_a, **_)", "-0.5 * jnp.sum(_a, **_)")),
        tests=f"{SUMS}::test_logits_of_any_key_dimension",
    ),
    mutant(
        "distance_not_squared",
        "distances are not squared",
        ("reduce/reducers.py:minus_squared_distance", replace("_a ** 2", "jnp.abs(_a)", near="sum range")),
        tests=f"{FIELDS}::test_velocity[l2]",
    ),
    mutant(
        "log_weights_ignored",
        "weights ignored by the normalised kinds",
        ("reduce/reducers.py:log_weights", replace("jnp.log(_a)", "jnp.zeros_like(_a)")),
        tests=f"{FIELDS}::test_velocity[softmax]",
    ),
    mutant(
        "zero_weight_counts",
        "a token of zero weight counts as one of weight one",
        ("reduce/reducers.py:log_weights", replace("-jnp.inf", "0")),
        tests=f"{COMBINATIONS}::test_zero_weight_acts_on_nobody",
    ),
    mutant(
        "zero_weight_maximum",
        "hardmax looks at tokens of zero weight",
        ("reduce/reducers.py:ArgmaxAverage.step", replace("_a > 0", "_a >= 0")),
        tests=f"{COMBINATIONS}::test_zero_weight_acts_on_nobody",
    ),
    mutant(
        "ties_not_by_weight",
        "hardmax shares ties equally, not by weight",
        ("reduce/reducers.py:ArgmaxAverage.step", replace("tokens.weights[:, None]", "1.0", near="logits new_top")),
        tests=f"{CONVENTIONS}::test_hardmax_shares_ties_by_weight",
    ),
    # Blocks
    mutant(
        "maximum_not_rescaled",
        "blocked average: what was summed is not rescaled to the new maximum",
        ("reduce/reducers.py:Average.step", replace("jnp.exp(_a)", "jnp.ones_like(_a)")),
        tests=f"{SUMS}::test_blocks_equal_dense",
    ),
    mutant(
        "padding_counts",
        "tokens that fill the last block count",
        ("reduce/exact.py:_fold_blocks", replace("_blocks(_a, _b, reducer.empty_weight)", "_blocks(_a, _b)")),
        tests=f"{BRANCHES}::test_both_branches_on_both_sides_of_the_limit",
    ),
    mutant(
        "bound_beyond_its_limit",
        "blocked average: the bound is used although terms that matter underflow",
        ("reduce/bounds.py:widest_spread", returns("_ + 9e9")),
        tests=BOTH,
    ),
    mutant(
        "bound_without_its_middle",
        "blocked average: the middle of the keys is not added back to the log-sum",
        ("reduce/bounds.py:_bound_dot", replace("_a @ _b + _c", "_c")),
        tests=BOTH,
    ),
    mutant(
        "middle_without_derivative",
        "the middle of the keys is added back to the log-sum without the derivative in the queries",
        ("reduce/bounds.py:_bound_dot", replace("_a @ _b", "jax.lax.stop_gradient(_a @ _b)")),
        tests=f"{BRANCHES}::test_derivatives_of_both_branches",
    ),
    mutant(
        "nothing_skipped",
        "blocks are folded that are not kept, or that no query sees",
        ("reduce/exact.py:_fold_blocks.fold.body", replace("_a is None", "True")),
        tests=f"{BRANCHES}::test_blocks_that_are_not_kept",
    ),
    mutant(
        "skip_by_the_last_token",
        "a block is skipped unless all of its tokens are seen",
        ("reduce/exact.py:_fold_blocks", replace("_a.min(axis=1)", "_a.max(axis=1)")),
        tests=f"{BRANCHES}::test_blocks_of_the_future_are_skipped",
    ),
    mutant(
        "mask_strict",
        "mask < for <=: a token does not see itself",
        ("reduce/exact.py:_step", replace("_a <= _b", "_a < _b")),
        tests=f"{FIELDS}::test_causal",
    ),
    mutant(
        "order_not_undone",
        "masked sums are returned in the order of the positions",
        ("reduce/exact.py:_fold_in_order", returns("folded")),
        tests=f"{SUMS}::test_blocks_equal_dense",
    ),
    # Grids
    mutant(
        "grid_beyond_its_range",
        "what a grid does not resolve is given as a number",
        ("reduce/sums.py:_or_nan", returns("(mean, total)")),
        tests=f"{GRID}::test_nan_exactly_where_the_grid_ends",
    ),
    mutant(
        "lagrange_for_exponentials",
        "a grid with the reach of fitted weights uses Lagrange's",
        ("reduce/grid.py:Grid.weights", replace("_a if self.fitted else _b", "_b")),
        tests=CLOUD,
    ),
    mutant(
        "no_tilt",
        "queries around their centre, but weights around 0",
        ("reduce/grid.py:grid_average", replace("_a + _b @ q.centre", "_a")),
        tests=CLOUD,
    ),
    mutant(
        "nodes_around_the_box",
        "the range of a grid leaves out the nodes around its box",
        ("reduce/grid.py:Grid.largest_range", returns("4 * _")),
        tests=CLOUD,
    ),
    mutant(
        "underflow_unseen",
        "ranges beyond the floating-point numbers",
        ("reduce/grid.py:grid_usage", replace("_a / range_limit(_)", "0 * _a")),
        tests=f"{GRID}::test_nan_where_floating_point_numbers_end",
    ),
    mutant(
        "far_keys_twice",
        "far tokens are in the grid too",
        ("reduce/sums.py:Fast._gridded", replace("jnp.where(core, _a, -jnp.inf)", "_a")),
        tests=f"{GRID}::test_far_tokens_are_summed_exactly",
    ),
    mutant(
        "distance_without_query",
        "log-sums of distances without the square of the query",
        ("reduce/sums.py:Fast._gridded", replace("_a - jnp.sum(_b ** 2, axis=1)", "_a")),
        tests=f"{GRID}::test_error_is_below_the_bound_for_distances",
    ),
    mutant(
        "one_box_for_all_groups",
        "the queries of all groups in one box",
        ("reduce/sums.py:Fast._grouped.pair", replace("_a & _b", "_b")),
        tests=f"{GRID}::test_groups_far_apart",
    ),
    mutant(
        "unmasked_block",
        "a token sees all of its own block of positions",
        ("reduce/prefix.py:_inside.one", replace("fold_tokens(_a, _b, _c, _d, _)", "fold_tokens(_a, _b, _c, _d)")),
        tests=f"{GRID}::test_masked_sums",
    ),
    mutant(
        "shared_positions",
        "tokens at one position are cut into blocks",
        ("reduce/prefix.py:prefix_average", replace("_a[1:] > _b[:-1]", "_a[1:] >= _b[:-1]")),
        tests=f"{GRID}::test_masked_sums",
    ),
    mutant(
        "light_prefix_underflows",
        "the first tokens may be too light",
        ("reduce/prefix.py:Prefixes.usage", replace("_a - _b / 2", "_a")),
        tests=f"{GRID}::test_masked_sums",
    ),
    # Pruned blocks, sums from grid to grid, plans
    mutant(
        "anchor_weighs_one",
        "the token that bounds a sum from below counts with weight one",
        ("reduce/prune.py:seen_blocks", replace("_a - _b[:, None]", "_a - 0 * _b[:, None] - 5")),
        tests=f"{PRUNED}::test_what_is_left_out_is_below_the_tolerance",
    ),
    mutant(
        "boxes_are_points",
        "blocks of tokens count as their centres",
        ("reduce/prune.py:_boxes", replace("(_a - _b) / 2", "0 * (_a - _b)")),
        tests=f"{PRUNED}::test_what_is_left_out_is_below_the_tolerance",
    ),
    mutant(
        "sigmoid_weights",
        "sums from grid to grid without the weights",
        ("reduce/nodes.py:node_sum", replace("tokens.weights[:, None] * _a", "_a")),
        tests=f"{FAST_FIELDS}::test_sigmoid_sums",
    ),
    mutant(
        "sigmoid_bias",
        "sums from grid to grid without the bias",
        ("reduce/nodes.py:node_sum", assign("added", "0 * _")),
        tests=f"{FAST_FIELDS}::test_sigmoid_sums",
    ),
    mutant(
        "no_margin",
        "a plan does not leave room for a cloud that grows",
        ("reduce/plan.py:_grids", replace("margin * _a", "_a")),
        tests=f"{PLANNER}::test_a_grid_covers_its_range_with_its_margin",
    ),
]
