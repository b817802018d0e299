"""The tests that wait for the night (`make nightly`): each takes seconds, and has a quicker one beside it.

What a mutant names (`tests/mutations`) is never here, so that every deliberate mistake is caught before a merge.
A name stands for all cases of a test, or with brackets for one of them.
"""

WAITING = {
    "app/test_explore_access.py": ["test_a_phone", "test_everything_is_reached_by_tab_and_seen"],
    "app/test_explore_exports.py": [
        "test_a_damaged_link_is_told",
        "test_a_film_is_saved",
        "test_an_experiment_file_is_opened",
    ],
    "app/test_explore_safety.py": ["test_a_lost_server_is_told_and_found_again"],
    "app/test_explore_tokens.py": [
        "test_a_matrix_is_changed_as_a_whole",
        "test_a_newer_change_wins_and_a_run_can_be_cancelled",
        "test_a_token_is_moved_by_keys",
        "test_five_thousand_tokens",
        "test_heads_mask_and_layers",
        "test_it_plays",
        "test_presets_of_other_dimensions",
        "test_tokens_move_only_at_the_start",
        "test_what_is_no_number_is_told_beside_its_cell",
        "test_what_the_picture_shows",
    ],
    "app/test_explore_views.py": [
        "test_a_density_can_be_cancelled",
        "test_ranks_are_told",
        "test_starts_by_keys",
        "test_the_exported_gaussian_runs_to_the_same_fate",
        "test_views_keep_what_they_show",
        "test_who_leaves_before_the_last_curves_finds_them_on_return",
    ],
    "attention/test_closure.py": ["test_derivatives[sinkhorn_l2-identity]"],
    "attention/test_combinations.py": [
        "test_batch_of_clouds[True-sinkhorn_dot]",
        "test_equal_heads_are_mapped[sinkhorn_dot]",
        "test_map_over_matrices[sinkhorn_dot]",
        "test_masked_matrix[sinkhorn_dot]",
        "test_matrix[sinkhorn_dot]",
        "test_zero_weight_has_finite_derivatives[sinkhorn_dot]",
    ],
    "attention/test_fast_fields.py": [
        "test_combined_fields[heads that are stacked]",
        "test_combined_fields[normalised]",
        "test_combined_fields[scheduled]",
        "test_derivatives[grid and far tokens]",
        "test_derivatives[prefix]",
        "test_plan_of_sinkhorn_with_tokens_of_zero_weight",
    ],
    "attention/test_identities.py": ["test_row_20_causal_ends[sinkhorn_l2]"],
    "attention/test_solved_fields.py": [
        "test_a_guess_saves_sweeps_and_changes_nothing[40-distance]",
        "test_a_guess_saves_sweeps_and_changes_nothing[600-dot]",
        "test_exact_and_fast_sums_give_what_is_needed",
        "test_fast_sums_with_tokens_without_weight",
        "test_mixing_with_other_values",
        "test_tokens_without_weight_are_harmless[300-3.0-0.0]",
        "test_tokens_without_weight_are_harmless[40-1.0-0.0]",
        "test_velocity_and_report_are_those_of_the_field[beside others]",
        "test_velocity_and_report_are_those_of_the_field[masked]",
        "test_velocity_and_report_are_those_of_the_field[scheduled]",
        "test_vmap_is_a_loop",
    ],
    "attention/test_worked_numbers.py": ["test_table[sinkhorn_l2]"],
    "diagnostics/test_clusters.py": ["test_tight_clusters_take_linear_memory_and_the_same_answer"],
    "docs/test_docstrings.py": [
        f"test_the_example_of_a_public_name_runs[{name}]"
        for name in ("Checked", "MeanFieldRate", "models.TransformerRecord", "models.closure", "models.frozen_fates")
    ],
    "docs/test_examples.py": [
        f"test_the_example_runs_and_its_results_hold[{name}]"
        for name in (
            "gaussian_fates",
            "mean_field_rate",
            "million_tokens",
            "real_model",
            "steer_gaussian",
            "three_representations",
        )
    ],
    "docs/test_notebooks.py": [
        "test_notebook_runs_and_shows_what_is_stored[gaussians]",
        "test_notebook_runs_and_shows_what_is_stored[real_model]",
    ],
    "docs/test_pages.py": [
        f"test_page_runs_and_prints_what_it_says[docs/{page}.md]"
        for page in (
            "attention/blocks",
            "attention/sinkhorn",
            "concepts/flows",
            "concepts/measures",
            "conventions",
            "gaussians",
            "howto/differentiate",
            "howto/large-clouds",
            "howto/new-attention",
            "howto/real-weights",
            "howto/sweeps",
            "models",
            "theory",
        )
    ],
    "experiments/test_model_run.py": ["test_interrupted_at_each_stage"],
    "experiments/test_sweeps.py": ["test_a_pool_of_processes_killed_and_resumed"],
    "flows/test_endless.py": [
        "test_a_mean_is_followed_to_a_blow_up_of_saturating_fields",
        "test_heads_and_sums",
        "test_means_beyond_the_floating_point_range",
        "test_states_along_the_run[converging--1]",
        "test_the_start_time_only_shifts",
    ],
    "flows/test_flow_gradients.py": [
        "test_gradient_of_adaptive_run_and_forward_mode",
        "test_vmap_over_clouds_of_different_lengths",
    ],
    "flows/test_flow_identities.py": [
        "test_row_21_causal_to_the_bit[many blocks]",
        "test_row_22_radius_along_flow[piecewise]",
        "test_row_22_radius_along_flow[scheduled]",
        "test_row_22_radius_along_layers[causal heads]",
        "test_row_25_layers_are_first_order[Sinkhorn]",
    ],
    "flows/test_gaussian_runs.py": ["test_derivatives_of_many_runs_at_once"],
    "flows/test_golden_trajectories.py": ["test_golden_and_rows_10_22_28[sinkhorn_l2]"],
    "flows/test_many_tokens.py": ["test_a_plan_under_jit", "test_a_step_that_leaves_its_plan_is_no_blow_up"],
    "flows/test_pieces_and_segments.py": ["test_forward_mode_through_a_break"],
    "flows/test_solver_orders.py": ["test_order[bosh3]", "test_order[dopri8]", "test_order[heun]"],
    "gaussian/test_batches.py": ["test_a_number_and_a_shared_part_are_for_all", "test_scaled_heads_with_outputs"],
    "gaussian/test_fates.py": ["test_ranks_of_limits[softmax]", "test_singular_matrices"],
    "metrics/test_entropic.py": [
        "test_an_eps_below_the_rounding_of_the_distances_is_not_converged",
        "test_convention_of_ott",
        "test_derivatives",
    ],
    "models/test_along.py": ["test_a_sentence_encoder_turns_its_tokens_to_each_other"],
    "models/test_exact.py": [
        "test_minilm_is_exact[float32-4e-06]",
        "test_the_forward_pass_in_single_precision[bert]",
        "test_the_forward_pass_in_single_precision[llama]",
    ],
    "models/test_model_closure.py": ["test_moments_of_many_tokens_under_a_mask"],
    "reduce/test_planner.py": ["test_values_of_keys_hold_for_their_field_only"],
    "store/test_journal.py": [
        "test_interrupted_and_whole_runs_have_the_same_bits[density]",
        "test_interrupted_and_whole_runs_have_the_same_bits[endless]",
    ],
    "theory/test_layers_that_differ.py": ["test_a_list_of_layers_is_judged_by_all_of_them"],
}


def waits(node: str) -> bool:
    """Whether a test, by its full name, waits for the night."""
    file, _, name = node.removeprefix("tests/").partition("::")
    return bool({name, name.partition("[")[0]} & set(WAITING.get(file, ())))
