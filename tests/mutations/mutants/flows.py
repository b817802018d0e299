"""Flows: frames, layers, breaks, densities, plans along a run."""

from ..mutators import assign, mutant, replace

RUNS = "tests/flows/test_golden_trajectories.py"
FLOW_IDENTITIES = "tests/flows/test_flow_identities.py"
TRAJECTORY = "tests/flows/test_trajectory.py"
STEPS = "tests/flows/test_steps.py"
STEPPING = "tests/flows/test_stepping.py"
VOLUMES = "tests/flows/test_finite_volume.py"
DENSITY_FLOW = "tests/flows/test_density_flow.py"
MANY = "tests/flows/test_many_tokens.py"

MUTANTS = [
    mutant(
        "frame_without_drift",
        "rescaled frame without - Vz",
        ("flows/frames.py:ConstantRescaled.velocity", replace("_a - y @ _b", "_a")),
        tests=f"{RUNS}::test_golden_rescaled_and_row_27_hull",
    ),
    mutant(
        "moving_frame_inverse",
        "moving frame: the inverse propagator moves by - V Phi^-1",
        ("flows/frames.py:MovingRescaled.velocity", replace("-_a @ _b", "-_b @ _a")),
        tests=f"{FLOW_IDENTITIES}::test_row_26_rescaled_frame",
    ),
    mutant(
        "across_breaks",
        "a flow does not restart at the breaks of a piecewise field",
        ("flows/setup.py:pieces", replace("not breaks", "True")),
        tests=f"{STEPS}::test_constant_steps_end_at_breaks",
    ),
    mutant(
        "noisy_rtol",
        "error control may be stricter than the sums",
        ("flows/setup.py:checked_control", replace("_a < 0.999 * _b", "False")),
        tests="tests/reduce/test_planner.py::test_refusals",
    ),
    mutant(
        "layers_step",
        "layers of half the step",
        ("flows/layers.py:_run.block", replace("_a + step * _b", "_a + 0.5 * step * _b")),
        tests=f"{RUNS}::test_golden_layers",
    ),
    mutant(
        "layers_time",
        "layers read a schedule one layer late",
        ("flows/layers.py:_run", replace("times[:-1]", "times[1:]")),
        tests=f"{TRAJECTORY}::test_layers_use_a_schedule_at_their_own_times",
    ),
    mutant(
        "layers_order",
        "layers in the reverse order",
        ("flows/layers.py:_stacked", replace("stack(_a)", "stack(_a[::-1])")),
        tests=(f"{TRAJECTORY}::test_layers_use_a_schedule_at_their_own_times", f"{RUNS}::test_golden_layers"),
    ),
    mutant(
        "interpolation_linear",
        "at(t) without the slopes",
        ("flows/system.py:AbstractSystem.between.between", replace("_a + h * _b", "_a")),
        tests=f"{TRAJECTORY}::test_at_is_exact_at_save_times_and_as_accurate_as_the_run_between",
    ),
    # The program of runs on the host
    mutant(
        "padding_in_the_norm",
        "padded tokens count in the norm of the error",
        ("flows/particles.py:ParticleSystem.size_of", replace("jnp.where(_a, first**2, 0)", "first**2")),
        tests=f"{STEPPING}::test_padding_is_not_seen",
    ),
    mutant(
        "padding_with_weight",
        "padded tokens have weight",
        (
            "flows/padding.py:padded",
            replace("_longer(np.asarray(mu.weights), size, 0)", "_longer(np.asarray(mu.weights), size)"),
        ),
        tests=f"{STEPPING}::test_padding_is_not_seen",
    ),
    mutant(
        "first_velocity",
        "the first step starts with a velocity of zero",
        ("flows/methods.py:RungeKutta.step", replace("jnp.where(first, count - 1, 1)", "jnp.where(first, count, 1)")),
        tests=f"{STEPPING}::test_tokens_step_as_with_diffrax",
    ),
    mutant(
        "errors_ignored",
        "every step is kept",
        ("flows/stepping.py:advance.iterate", replace("(error < 1) & finite", "finite")),
        tests="tests/flows/test_flow_outcomes.py::test_linear_attention_blows_up_when_riccati_does",
    ),
    mutant(
        "rows_between_steps",
        "saved states are those at the end of their step",
        ("flows/stepping.py:advance._save.write", replace("times[row] == t", "True")),
        tests=f"{STEPPING}::test_tokens_step_as_with_diffrax",
    ),
    # Densities
    mutant(
        "downwind",
        "fluxes take the cell behind",
        ("flows/finite_volume.py:fluxes", replace("u > 0", "u < 0")),
        tests=f"{VOLUMES}::test_no_mass_is_made_and_none_becomes_negative",
    ),
    mutant(
        "unlimited",
        "slopes are not limited where differences disagree",
        ("flows/finite_volume.py:limited_slopes", replace("_a * _b > 0", "_a + _b != 0")),
        tests=f"{VOLUMES}::test_faces_stay_between_the_neighbours",
    ),
    mutant(
        "first_order",
        "no reconstruction: first-order upwind",
        ("flows/finite_volume.py:fluxes", replace("limited_slopes(*_a) / 2", "0 * limited_slopes(*_a)")),
        tests=f"{VOLUMES}::test_linear_data_are_transported_exactly_inside",
    ),
    mutant(
        "loss_not_counted",
        "mass lost at the lower edge is not counted",
        ("flows/finite_volume.py:divergence", replace("_a + _b.sum() - _c.sum()", "_a + _b.sum()")),
        tests=f"{VOLUMES}::test_no_mass_is_made_and_none_becomes_negative",
    ),
    mutant(
        "long_steps",
        "steps three times as long as positivity allows",
        ("flows/densities.py", assign("COURANT", "3 * _")),
        tests=f"{DENSITY_FLOW}::test_steps_are_as_short_as_positivity_asks",
    ),
    mutant(
        "euler_in_time",
        "the second stage of Heun's method is dropped",
        ("flows/densities.py:_advance.stage", replace("jax.tree.map(lambda a, b: (a + b) / 2, _a, _b)", "now.ahead")),
        tests=f"{DENSITY_FLOW}::test_second_order_towards_the_gaussian",
    ),
    mutant(
        "no_more_room",
        "the grid of a density is not extended",
        ("flows/domain.py:covering", replace("_a.extended(_b, _c)", "_a")),
        tests=f"{DENSITY_FLOW}::test_second_order_towards_the_gaussian",
    ),
    # Plans
    mutant(
        "plan_never_outgrown",
        "a segment goes on when its plan is used up",
        ("flows/particles.py:ParticleSystem.outgrown", replace("_a > PLAN_END", "_a > 1e9 * PLAN_END")),
        tests=f"{MANY}::test_plans_follow_an_expanding_cloud",
    ),
    mutant(
        "sample_unweighted",
        "the weights of a sample do not sum to one",
        ("flows/observe.py:Observer.seen", replace("_a / _a.sum()", "_a")),
        tests=f"{MANY}::test_plans_follow_an_expanding_cloud",
    ),
    mutant(
        "plan_forgotten",
        "a resumed run makes another plan of its sums",
        ("flows/planning.py:Planner.restore", replace("self._make(*_a)", "None")),
        tests="tests/store/test_journal.py::test_interrupted_and_whole_runs_have_the_same_bits[planned]",
    ),
    mutant(
        "first_step_moves",
        "the step of length zero that asks for a velocity also moves the state",
        ("flows/stepping.py:advance.iterate", replace("kept & ~now.first", "kept", near="y")),
        tests=f"{STEPPING}::test_a_velocity_that_is_no_number_leaves_the_state",
    ),
    mutant(
        "rounding_of_time",
        "steps of single precision leave a sliver at the end",
        ("flows/stepping.py:advance.iterate", replace("jnp.maximum(LEFT_OVER * left, _a)", "LEFT_OVER * left")),
        tests=f"{STEPPING}::test_steps_of_float32_fill_the_time_and_no_more",
    ),
    mutant(
        "tolerance_in_given_units",
        "the absolute tolerance is the same for tokens of any size: small ones are not controlled",
        ("flows/setup.py:_token_atol", replace("xp.clip(_a, _b, _c)", "_a")),
        tests="tests/test_scale.py::test_runs_follow_the_units",
    ),
]
