"""Mistakes in journals, run folders and sweeps: (name, mistake, edits, tests), as in `run.py`."""

JOURNAL = "tests/store/test_journal.py"
BITS = f"{JOURNAL}::test_interrupted_and_whole_runs_have_the_same_bits"
CODEC = "tests/store/test_codec.py"
SWEEPS = "tests/experiments/test_sweeps.py"

FOLDERS = [
    (
        "step_forgotten",
        "a resumed run begins with a first step",
        (
            (
                "flows/run.py",
                "kept, (t, y, dt, planned, earlier_start), note",
                "kept, (t, y, _, planned, earlier_start), note",
            ),
        ),
        (f"{BITS}[pieces]",),
    ),
    (
        "plan_forgotten",
        "a resumed run makes another plan of its sums",
        (("flows/planning.py", "            self._make(piece_of(self.piece), *state)\n", "            pass\n"),),
        (f"{BITS}[planned]",),
    ),
    (
        "start_of_the_segment_forgotten",
        "a resumed run that blows up has no last whole state",
        (("flows/run.py", "before = (t, y) if earlier_start is None else earlier_start", "before = (t, y)"),),
        (f"{JOURNAL}::test_a_sampled_run_that_blows_up_has_the_same_end_when_it_is_resumed",),
    ),
    (
        "rows_written_twice",
        "what was written stays pending",
        (
            (
                "store/journal.py",
                "(rows, state, note), self._pending = self._pending, None",
                "rows, state, note = self._pending",
            ),
        ),
        (f"{JOURNAL}::test_an_interrupt_in_the_middle_of_a_write_neither_loses_nor_doubles_rows", f"{BITS}[layers]"),
    ),
    (
        "interrupt_inside_a_write",
        "Ctrl-C does not wait for the end of a write",
        (("store/disk.py", "signal.signal(number, lambda *event: came.append(event))", "pass"),),
        (f"{JOURNAL}::test_an_interrupt_in_the_middle_of_a_write_neither_loses_nor_doubles_rows",),
    ),
    (
        "damage_unseen",
        "checksums are not compared",
        (("store/folder.py", "if len(data) != size or zlib.crc32(data) != crc:", "if len(data) != size:"),),
        (f"{JOURNAL}::test_damage_is_found_and_the_rest_is_safe",),
    ),
    (
        "damaged_but_done",
        "a run whose segments were discarded still counts as done",
        (("store/folder.py", '(self.path / "results.json").unlink(missing_ok=True)', "pass"),),
        (f"{JOURNAL}::test_what_is_damaged_is_computed_again",),
    ),
    (
        "closures_not_hashed",
        "functions that close over other numbers are taken for the same",
        (("store/codec.py", "cells = [cell.cell_contents for cell in node.__closure__ or ()]", "cells = []"),),
        (f"{CODEC}::test_fingerprints_tell_inputs_apart_and_are_those_of_every_process",),
    ),
    (
        "axes_in_the_wrong_order",
        "the first axis of a sweep runs fastest, but the table says the last",
        (("experiments/sweeps.py", "in reversed(axes.items())", "in axes.items()"),),
        (f"{SWEEPS}::test_the_table_has_the_numbers_of_each_run",),
    ),
    (
        "dead_too_early",
        "an eigenvalue that stays far below the start is called dead",
        (("gaussian/classify.py", "ALL_DEAD = 1e4", "ALL_DEAD = 1e2"),),
        ("tests/gaussian/test_fates.py::test_an_eigenvalue_that_stays_far_below_the_start_is_not_called_dead",),
    ),
]
