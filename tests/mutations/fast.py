"""Mistakes in sums up to an accuracy, in plans and in runs with many tokens: (name, mistake, edits, tests), as in
`run.py`.
"""

GRID = "tests/reduce/test_grid.py"
PRUNED = "tests/reduce/test_pruned_blocks.py"
PLANNER = "tests/reduce/test_planner.py"
FAST_FIELDS = "tests/attention/test_fast_fields.py"
MANY = "tests/flows/test_many_tokens.py"

FAST = [
    (
        "grid_beyond_its_range",
        "what a grid does not resolve is given as a number",
        (
            (
                "reduce/sums.py",
                "return jnp.where(used <= 1, mean, jnp.nan), jnp.where(used <= 1, total, jnp.nan)",
                "return mean, total",
            ),
        ),
        (f"{GRID}::test_nan_exactly_where_the_grid_ends",),
    ),
    (
        "lagrange_for_exponentials",
        "a grid with the reach of fitted weights uses Lagrange's",
        (("reduce/grid.py", "self.reach if self.fitted else 0.0", "0.0"),),
        (f"{GRID}::test_error_is_below_the_bound_for_every_cloud",),
    ),
    (
        "no_tilt",
        "queries around their centre, but weights around 0",
        (("reduce/grid.py", "log_weights + y.offsets @ q.centre", "log_weights"),),
        (f"{GRID}::test_error_is_below_the_bound_for_every_cloud",),
    ),
    (
        "nodes_around_the_box",
        "the range of a grid leaves out the nodes around its box",
        (
            (
                "reduce/grid.py",
                "self.reach * self.cells / 2 / (1 + (self.order - 2) / self.cells)",
                "2 * self.reach * self.cells",
            ),
        ),
        (f"{GRID}::test_error_is_below_the_bound_for_every_cloud",),
    ),
    (
        "underflow_unseen",
        "ranges beyond the floating-point numbers",
        (("reduce/grid.py", "ranges.sum() / range_limit(ranges.dtype)", "0 * ranges.sum()"),),
        (f"{GRID}::test_nan_where_floating_point_numbers_end",),
    ),
    (
        "far_keys_twice",
        "far tokens are in the grid too",
        (("reduce/sums.py", "logs = jnp.where(core, logs, -jnp.inf)", "logs = 1.0 * logs"),),
        (f"{GRID}::test_far_tokens_are_summed_exactly",),
    ),
    (
        "distance_without_query",
        "log-sums of distances without the square of the query",
        (("reduce/sums.py", "total = total - jnp.sum(queries**2, axis=1)", "total = 1.0 * total"),),
        (f"{GRID}::test_error_is_below_the_bound_for_distances",),
    ),
    (
        "one_box_for_all_groups",
        "the queries of all groups in one box",
        (("reduce/sums.py", "asking & inside)", "inside)"),),
        (f"{GRID}::test_groups_far_apart",),
    ),
    (
        "unmasked_block",
        "a token sees all of its own block of positions",
        (
            (
                "reduce/prefix.py",
                "fold_tokens(Average(), logit, q, inside, inside.positions)",
                "fold_tokens(Average(), logit, q, inside)",
            ),
        ),
        (f"{GRID}::test_masked_sums",),
    ),
    (
        "shared_positions",
        "tokens at one position are cut into blocks",
        (("reduce/prefix.py", "(in_order[1:] > in_order[:-1])", "(in_order[1:] >= in_order[:-1])"),),
        (f"{GRID}::test_masked_sums",),
    ),
    (
        "light_prefix_underflows",
        "the first tokens may be too light",
        (("reduce/prefix.py", " - lightest / 2)", ")"),),
        (f"{GRID}::test_masked_sums",),
    ),
    (
        "anchor_weighs_one",
        "the token that bounds a sum from below counts with weight one",
        (("reduce/prune.py", "D.logs[None] - anchor_logs[:, None]", "D.logs[None] - 0 * anchor_logs[:, None] - 5"),),
        (f"{PRUNED}::test_what_is_left_out_is_below_the_tolerance",),
    ),
    (
        "boxes_are_points",
        "blocks of tokens count as their centres",
        (("reduce/prune.py", "(low + high) / 2, (high - low) / 2,", "(low + high) / 2, 0 * (high - low),"),),
        (f"{PRUNED}::test_what_is_left_out_is_below_the_tolerance",),
    ),
    (
        "sigmoid_weights",
        "sums from grid to grid without the weights",
        (("reduce/nodes.py", "tokens.weights[:, None] * tokens.values", "tokens.values"),),
        (f"{FAST_FIELDS}::test_sigmoid_sums",),
    ),
    (
        "sigmoid_bias",
        "sums from grid to grid without the bias",
        (("reduce/nodes.py", "added = queries[0, -1] * tokens.keys[0, -1]", "added = 0 * tokens.keys[0, -1]"),),
        (f"{FAST_FIELDS}::test_sigmoid_sums",),
    ),
    (
        "no_margin",
        "a plan does not leave room for a cloud that grows",
        (
            (
                "reduce/plan.py",
                "ranges = margin * _boxes(a, far, labels).ranges",
                "ranges = _boxes(a, far, labels).ranges",
            ),
        ),
        (f"{PLANNER}::test_a_grid_covers_its_range_with_its_margin",),
    ),
    (
        "plan_unchecked",
        "a plan that misses its accuracy on the sample is used",
        (("attention/planned.py", "if error <= accuracy:", "if error <= 1e9:"),),
        (f"{PLANNER}::test_an_accuracy_that_cannot_be_kept_is_not_promised",),
    ),
    (
        "noisy_rtol",
        "error control may be stricter than the sums",
        (("flows/setup.py", "float(rtol) < 0.999 * noise", "float(rtol) < 0 * noise"),),
        (f"{PLANNER}::test_refusals",),
    ),
    (
        "plan_never_outgrown",
        "a segment goes on when its plan is used up",
        (("flows/particles.py", "> PLAN_END", "> 1e9 * PLAN_END"),),
        (f"{MANY}::test_plans_follow_an_expanding_cloud",),
    ),
    (
        "sample_unweighted",
        "the weights of a sample do not sum to one",
        (("flows/observe.py", "weights / weights.sum()", "1.0 * weights"),),
        (f"{MANY}::test_plans_follow_an_expanding_cloud",),
    ),
]
