"""Pretrained transformers: readers, curves over depth, closures, nulls, frozen layers."""

from ..mutators import assign, mutant, replace

EXACT = "tests/models/test_exact.py::test_the_forward_pass_is_exact"
ALONG = "tests/models/test_along.py"
CLOSURE = "tests/models/test_model_closure.py"
FROZEN = "tests/models/test_frozen.py"
NULLS = "tests/models/test_nulls.py"
READERS = "tests/models/test_readers.py"
SAFETY = "tests/models/test_safety.py"
HOSTILE = "tests/models/test_hostile.py"

MUTANTS = [
    # Readers
    mutant(
        "temperature_of_heads",
        "heads with temperature k, not its root",
        ("models/readers/source.py:_head", replace("math.sqrt(_a)", "_a")),
        tests=EXACT,
    ),
    mutant(
        "output_by_rows",
        "the output matrix of the heads cut by rows",
        ("models/readers/source.py:attention", replace("np.split(_a, _b, axis=1)", "np.split(_a.T, _b, axis=1)")),
        tests=EXACT,
    ),
    mutant(
        "keys_shared_in_turn",
        "heads of queries take the few keys in turn, not by groups",
        ("models/readers/source.py:cut", replace("matrices[i // times]", "matrices[i % parts]")),
        tests=(f"{READERS}::test_many_heads_of_queries_share_keys", EXACT),
    ),
    mutant(
        "rotations_half_as_fast",
        "rotary rates by the number of pairs",
        ("models/readers/decoders.py:rotary_rates", replace("np.arange(0, size, 2)", "np.arange(0, size // 2)")),
        tests=(f"{READERS}::test_rates_of_rotations", EXACT),
    ),
    mutant(
        "tensors_left_over",
        "tensors of the blocks that nobody asks for are ignored",
        ("models/readers/source.py:Source.check_all_read", assign("left", "_[:0]")),
        tests=(f"{SAFETY}::test_tensors_that_nobody_asks_for", f"{READERS}::test_a_tensor_too_many"),
    ),
    mutant(
        "gate_without_activation",
        "a gated perceptron is bilinear",
        ("models/layers.py:Gated.evaluate", replace("self.activation(_a)", "_a")),
        tests=EXACT,
    ),
    # Curves over depth
    mutant(
        "moments_unweighted",
        "the spectrum of tokens of equal weight",
        ("models/curves.py:cloud_numbers", replace("np.sqrt(w)[:, None] * _a", "_a / np.sqrt(len(w))")),
        tests=f"{ALONG}::test_curves_are_the_diagnostics_of_each_state",
    ),
    mutant(
        "nearness_counts_itself",
        "a token is near itself",
        ("models/curves.py:nearness", replace("_a[i != j]", "_a")),
        tests=f"{ALONG}::test_nearness_is_single_linkage_by_angle",
    ),
    mutant(
        "energy_sees_the_future",
        "the energy of a masked head counts all pairs",
        ("models/curves.py:_energy", replace("jnp.where(_, _a, -jnp.inf)", "_a")),
        tests=f"{ALONG}::test_heads_against_loops",
    ),
    mutant(
        "uniform_without_mask",
        "what a token receives is compared with attention without a mask",
        ("models/curves.py:_sees", replace("_a & _b", "_a")),
        tests=(f"{ALONG}::test_under_uniform_attention_nobody_is_special", f"{ALONG}::test_heads_against_loops"),
    ),
    # Closures
    mutant(
        "gain_of_raw_values",
        "the closure under a mask without the mean of the logits",
        ("models/closures.py:predicted", replace("_a - _b * mean", "_a")),
        tests=f"{CLOSURE}::test_errors_are_those_of_loops",
    ),
    mutant(
        "errors_before_the_output",
        "heads are compared before their output matrix",
        ("models/closures.py:_squares", replace("_a @ mu.weights", "_a.mean(axis=1)")),
        tests=f"{CLOSURE}::test_errors_are_those_of_loops",
    ),
    mutant(
        "logits_not_matched",
        "random heads keep their small logits",
        ("models/closures.py:with_logits", assign("factor", "np.ones_like(_)")),
        tests=f"{CLOSURE}::test_nulls_are_what_they_say",
    ),
    mutant(
        "norms_not_kept",
        "random matrices without the norm of the trained ones",
        ("models/nulls.py:randomised.random", replace("_a * (_b / _c)", "_a")),
        tests=f"{NULLS}::test_each_matrix_and_bias_keeps_its_norm",
    ),
    # Frozen layers
    mutant(
        "biases_of_values_lost",
        "heads on top of each other without their value biases",
        ("models/frozen.py:stacked", assign("b", "0 * _")),
        tests=f"{FROZEN}::test_heads_on_top_of_each_other_are_the_heads",
    ),
    mutant(
        "bound_twice_as_late",
        "the bound of the blow-up time without its 2",
        ("models/frozen.py:lower_bound", replace("2 * _a ** 2 * _b", "_a ** 2 * _b")),
        tests=f"{FROZEN}::test_the_lower_bound",
    ),
    mutant(
        "growth_is_blow_up",
        "any growth is called a blow-up",
        ("models/frozen.py:_fate", replace("_a > FASTER", "True")),
        tests=f"{FROZEN}::test_growth_that_is_no_blow_up",
    ),
    mutant(
        "mean_stops_the_run",
        "a mean that goes away ends the look at a layer",
        (
            "models/frozen.py:CovarianceAbove.__call__",
            replace("jnp.sum(mu.factor ** 2)", "jnp.sum(mu.factor ** 2) + jnp.sum(mu.mean ** 2)"),
        ),
        tests=f"{FROZEN}::test_the_mean_does_not_stop_a_run",
    ),
    # Models that are meant to do harm
    mutant(
        "pickles_ask_for_anything",
        "a pickle may ask for any name",
        ("models/pickles.py:_look_at_pickle", replace("argument not in NAMES", "False")),
        tests=f"{HOSTILE}::test_a_pickle_is_looked_at_before_it_is_read",
    ),
    mutant(
        "pickles_reserve",
        "a pickle may call what makes data",
        ("models/pickled.py:Machine._call", replace("name not in CALLED", "False")),
        tests=f"{HOSTILE}::test_a_pickle_is_looked_at_before_it_is_read",
    ),
    mutant(
        "any_keys",
        "keys of tables may be tuples",
        ("models/pickled.py:Machine._put", replace("isinstance(key, (Whole, Name))", "False")),
        tests=f"{HOSTILE}::test_a_pickle_is_looked_at_before_it_is_read",
    ),
    mutant(
        "data_beyond_files",
        "a pickle may name more data than its file has",
        ("models/pickled.py:Machine.check", replace("sum(_a) > size", "False")),
        tests=f"{HOSTILE}::test_a_pickle_is_looked_at_before_it_is_read",
    ),
    mutant(
        "archives_are_unpacked",
        "compressed archives are read",
        ("models/pickles.py:_look_at_archive", assign("packed", "_[:0]")),
        tests=f"{HOSTILE}::test_an_archive_is_as_torch_writes_it",
    ),
    mutant(
        "links_are_followed",
        "files of a model lie wherever links lead",
        ("models/files.py:file_in", replace("place.is_relative_to(_a)", "True")),
        tests=f"{HOSTILE}::test_links_out_of_the_folder",
    ),
    mutant(
        "texts_grow",
        "each replacement of a tokenizer counts for itself",
        ("models/growth.py:check_growth", replace("factor > MOST", "one > MOST")),
        tests=f"{HOSTILE}::test_a_tokenizer_that_makes_texts_enormous",
    ),
    mutant(
        "texts_repeat",
        "a template may have the text more than once",
        ("models/growth.py:_check_ends", replace("texts > 1", "False")),
        tests=f"{HOSTILE}::test_much_around_a_text",
    ),
    mutant(
        "words_without_end",
        "words of a vocabulary may be of any length",
        ("models/growth.py:_check_words", replace("_a > LONGEST_WORD", "False")),
        tests=f"{HOSTILE}::test_enormous_words_of_plain_vocabularies",
    ),
]
