"""Run folders, journals, what is written of objects, and sweeps."""

from ..mutators import assign, drop, mutant, replace

JOURNAL = "tests/store/test_journal.py"
ARRAYS = "tests/store/test_arrays.py"
FOLDER = "tests/store/test_folder.py"
OWNERSHIP = "tests/store/test_ownership.py"
FOREIGN = "tests/store/test_foreign.py"
CODEC = "tests/store/test_codec.py"
INTERRUPT = f"{JOURNAL}::test_an_interrupt_in_the_middle_of_a_write_neither_loses_nor_doubles_rows"
PROGRAMS = "tests/test_programs.py"
SWEEPS = "tests/experiments/test_sweeps.py"
INTERRUPTION = "tests/store/test_interruption.py"

MUTANTS = [
    mutant(
        "rows_written_twice",
        "what was written stays pending",
        ("store/journal.py:Journal.flush", replace("(self._pending, None)", "(self._pending, self._pending)")),
        tests=INTERRUPT,
    ),
    mutant(
        "interrupt_inside_a_write",
        "Ctrl-C does not wait for the end of a write",
        ("store/interruption.py:undisturbed", drop("signal.signal", near="came")),
        tests=INTERRUPT,
    ),
    mutant(
        "interrupt_swallowed",
        "Ctrl-C during a write is forgotten",
        ("store/interruption.py:undisturbed", replace("came[:1]", "came[:0]")),
        tests=INTERRUPT,
    ),
    mutant(
        "interrupt_in_a_callback",
        "Ctrl-C is raised inside of a callback of the garbage collector",
        ("store/interruption.py:_is_forgetful", replace("_a in callbacks", "False")),
        tests=f"{INTERRUPTION}::test_what_cleans_up_is_not_left_in_the_middle",
    ),
    mutant(
        "interrupt_in_a_weak_reference",
        "Ctrl-C is forgotten in callbacks of weak references",
        ("store/interruption.py:_Once.unraisable", replace("found.exc_type is KeyboardInterrupt", "False")),
        tests=f"{INTERRUPTION}::test_an_interruption_that_got_lost_comes_again",
    ),
    mutant(
        "interrupt_disguised",
        "an error that was made of Ctrl-C is told as one",
        ("store/interruption.py:recognised", replace("handler.is_behind()", "False")),
        tests=f"{INTERRUPTION}::test_an_interruption_that_became_another_error",
    ),
    mutant(
        "interrupt_hides_an_error",
        "what goes wrong after Ctrl-C is told as Ctrl-C",
        ("store/interruption.py:_Once.is_behind", replace("not self.heard", "True")),
        tests=f"{INTERRUPTION}::test_what_goes_wrong_after_an_interruption_has_its_own_words",
    ),
    mutant(
        "interrupt_remembered_for_ever",
        "each error after a Ctrl-C is told as Ctrl-C",
        ("store/interruption.py:_Once.is_behind", replace("_a < RECENT", "True")),
        tests=f"{INTERRUPTION}::test_what_goes_wrong_long_after_has_its_own_words",
    ),
    mutant(
        "interrupt_hides_a_sweep",
        "a disk that is full after Ctrl-C in a sweep is told as Ctrl-C",
        ("experiments/sweeps.py:run_sweep", replace("recognised()", "contextlib.nullcontext()")),
        tests=f"{SWEEPS}::test_what_goes_wrong_after_an_interruption_is_told",
    ),
    mutant(
        "interrupt_wakes_nobody",
        "Ctrl-C that comes again waits for who waits",
        ("store/interruption.py:_Once._again", replace('hasattr(signal, "pthread_kill")', "False")),
        tests=f"{INTERRUPTION}::test_an_interruption_that_got_lost_wakes_who_waits",
    ),
    mutant(
        "interrupt_while_leaving",
        "Ctrl-C at the very end leaves handlers behind",
        ("store/interruption.py:asked_once", assign("once.closed", "False")),
        tests=f"{INTERRUPTION}::test_interrupted_at_any_line_of_beginning_and_ending",
    ),
    mutant(
        "interrupt_while_given_back",
        "Ctrl-C while handlers are given back leaves others behind",
        ("store/interruption.py:_give_back", drop("signal.signal", near="number handler")),
        tests=f"{INTERRUPTION}::test_interrupted_at_any_line_of_beginning_and_ending",
    ),
    mutant(
        "damage_unseen",
        "checksums are not compared",
        ("store/folder.py:RunFolder._chunk", replace("zlib.crc32(data) != _", "False")),
        tests=f"{JOURNAL}::test_damage_is_found_and_the_rest_is_safe",
    ),
    mutant(
        "damaged_but_done",
        "a run whose segments were discarded still counts as done",
        ("store/mending.py:mend", drop("writer.remove", nth=0)),
        tests=f"{JOURNAL}::test_what_is_damaged_is_computed_again",
    ),
    mutant(
        "states_lost_but_done",
        "a sweep that has lost states which it keeps still counts as done",
        ("store/mending.py:mend", drop("writer.remove", nth=1)),
        tests=f"{SWEEPS}::test_states_that_are_kept_are_checked_and_made_again",
    ),
    mutant(
        "states_unseen",
        "the states that a sweep keeps are not checked",
        ("store/mending.py:check_whole", replace("kept_tasks(folder)", "[]")),
        tests=f"{SWEEPS}::test_states_that_are_kept_are_checked_and_made_again",
    ),
    mutant(
        "arrays_need_more_than_copying",
        "arrays of any codec are read",
        ("store/arrays.py:_read", replace('codec["name"] == "bytes"', "True")),
        tests=f"{ARRAYS}::test_arrays_that_claim_more_than_there_is",
    ),
    mutant(
        "arrays_in_the_wrong_order",
        "numbers are read in the order of this machine",
        ("store/arrays.py:_read", replace("dtype.newbyteorder(_a)", "dtype")),
        tests=f"{ARRAYS}::test_arrays_of_other_machines",
    ),
    mutant(
        "chunks_uncounted",
        "an array has as many chunks as it says",
        ("store/arrays.py:_read", replace("max(counts, default=0)", "0")),
        tests=f"{ARRAYS}::test_arrays_that_claim_more_than_there_is",
    ),
    mutant(
        "lost_record_of_a_task",
        "the states of a task whose run.json is gone count as whole",
        ("store/mending.py:mend", replace("part.has_lost_record()", "False")),
        ("store/folder.py:RunFolder.is_done", replace("self.exists()", "True")),
        tests=f"{SWEEPS}::test_states_that_are_kept_are_checked_and_made_again",
    ),
    mutant(
        "workers_of_a_failed_sweep",
        "workers go on after a sweep that failed",
        ("experiments/sweeps.py:run_sweep", replace("contextlib.closing(results)", "contextlib.nullcontext()")),
        tests=f"{SWEEPS}::test_a_sweep_that_fails_ends_its_workers",
    ),
    mutant(
        "errors_before_speak_to_the_terminal",
        "words of others are in the error from which one is raised",
        ("_words.py:spell_out", drop("error.args")),
        tests="tests/store/test_foreign.py::test_what_was_raised_before_does_not_either",
    ),
    mutant(
        "inputs_after_the_run",
        "a run is there before the files that it reads",
        ("experiments/runner.py:begin", replace("folder.create(_a, _b, inputs)", "folder.create(_a, _b)")),
        tests="tests/experiments/test_model_run.py::test_a_run_that_is_killed_at_its_beginning_goes_on",
    ),
    mutant(
        "inputs_make_a_lost_run",
        "what was killed before it was a run is one that has lost its run.json",
        ("store/folder.py", replace('"input."', '"other."')),
        tests="tests/experiments/test_model_run.py::test_a_run_that_is_killed_at_its_beginning_goes_on",
    ),
    mutant(
        "lock_of_another_program",
        "the lock of another program is taken for ours",
        ("store/lock.py:_names_process", replace("begins", "True", near="MOST")),
        tests="tests/store/test_ownership.py::test_a_file_of_somebody_else_under_our_names_is_not_touched",
    ),
    mutant(
        "errors_speak_to_the_terminal",
        "words of others are raised as they are",
        ("store/errors.py:FolderError.__init__", replace("map(one_line, _a)", "_a")),
        tests="tests/store/test_foreign.py::test_what_is_raised_does_not_speak_to_the_terminal",
    ),
    mutant(
        "listed_before_written",
        "a segment counts before it is whole",
        ("store/folder.py:RunFolder.add_segment", drop("write_folder")),
        (
            "store/folder.py:RunFolder.add_segment",
            replace(
                "writer.write(*_a)",
                "(writer.write(*_a), writer.write_folder(f'segments/{name}', {**files, 'segment.json': about}))",
            ),
        ),
        tests="tests/store/test_kill.py::test_killed_at_steps_of_the_writer",
    ),
    mutant(
        "any_format",
        "folders of other formats are read",
        ("store/folder.py:RunFolder.record", replace("_a not in READ", "False")),
        tests=f"{JOURNAL}::test_other_formats_are_refused_with_the_version_to_use",
    ),
    mutant(
        "seal_unseen",
        "the checksums of JSON files are not compared",
        ("store/sealed.py:unseal", replace("rest != _a", "False")),
        tests=f"{FOLDER}::test_a_digit_of_a_result_is_not_shown",
    ),
    mutant(
        "names_not_listed",
        "a file is written before its name is listed",
        ("store/writer.py:Writer._claim", drop("disk.append")),
        tests="tests/store/test_kill.py::test_killed_at_steps_of_the_writer",
    ),
    mutant(
        "everything_removed",
        "removing a run follows links",
        ("store/disk.py:opened", replace("os.O_NOFOLLOW", "0")),
        tests=f"{FOLDER}::test_links_are_neither_followed_nor_removed",
    ),
    mutant(
        "moved_unseen",
        "nobody looks whether the folder still has its name",
        ("store/places.py:check_there", replace("os.path.samestat(*_a)", "True")),
        tests=f"{FOLDER}::test_a_folder_that_is_moved_during_a_run",
    ),
    mutant(
        "any_list_is_ours",
        "a file of somebody else, called as our list is, is replaced",
        ("store/writer.py:Writer._read_ledger", replace("is_there and found.mark is None and not is_run", "False")),
        tests=f"{OWNERSHIP}::test_a_file_of_somebody_else_under_our_names_is_not_touched",
    ),
    mutant(
        "lost_is_free",
        "a run without its run.json counts as an empty folder",
        ("store/folder.py:RunFolder.has_lost_record", replace("any(*_a)", "False")),
        tests=f"{OWNERSHIP}::test_a_run_that_has_lost_its_record_is_not_taken_for_a_free_folder",
    ),
    mutant(
        "any_run_is_this_one",
        "files of another run are believed",
        ("store/ledger.py:Ledger.has", replace("crc32 in _a", "True")),
        tests=f"{OWNERSHIP}::test_files_of_another_run_are_told_apart",
    ),
    mutant(
        "copies_are_parts",
        "a copy of a case is removed with the run",
        ("store/writer.py:Writer._entries_as_parts", replace("found.place == _a", "True")),
        tests=f"{OWNERSHIP}::test_copies_and_changed_files_are_not_removed",
    ),
    mutant(
        "any_part_is_ours",
        "the case of another run is taken for one of this",
        ("store/places.py:check_part", replace("mark != inside", "False")),
        tests=f"{FOREIGN}::test_a_case_of_another_run_is_told_apart",
    ),
    mutant(
        "links_are_read",
        "reading follows links out of the folder",
        ("store/disk.py:_opened_to_read", replace("flags | _a", "flags")),
        tests=f"{FOREIGN}::test_links_lead_nowhere",
    ),
    mutant(
        "long_words",
        "an array in the text of a folder may have letters without number",
        ("store/codec.py:_inline", replace('DTYPES[node["dtype"]]', 'np.dtype(node["dtype"])')),
        ("store/arrays.py:is_plain", replace("dtype in DTYPES", "True")),
        tests=f"{FOREIGN}::test_arrays_in_the_text_are_numbers",
    ),
    mutant(
        "a_copy_is_the_run",
        "parts are written into a copy of the run",
        ("store/writer.py:Writer._make_part", replace("_a != inside.identity", "False")),
        tests=f"{OWNERSHIP}::test_parts_are_not_made_in_a_copy",
    ),
    mutant(
        "bytes_not_flushed",
        "a file is renamed before its bytes are on the disk",
        ("store/disk.py:append", drop("os.fsync")),
        tests="tests/store/test_power.py",
    ),
    mutant(
        "names_not_flushed",
        "a file counts as written before its name is on the disk",
        ("store/disk.py:write_file", drop("flush")),
        tests="tests/store/test_power.py",
    ),
    mutant(
        "any_call",
        "the folder of another call is taken for this one's",
        ("store/journal.py:Journal._is_done", replace("found.get('hash') != name", "False")),
        tests=f"{JOURNAL}::test_a_folder_belongs_to_one_call",
    ),
    mutant(
        "read_at_once",
        "states are read although nobody asks for them",
        ("store/load.py:load", replace("Lazy(lambda: _a)", "_a")),
        tests=f"{JOURNAL}::test_saved_runs_load_and_are_lazy",
    ),
    mutant(
        "closures_not_hashed",
        "functions that close over other numbers are taken for the same",
        ("store/codec.py:_digest_of_function.of", replace("cell.cell_contents", "None")),
        tests=f"{CODEC}::test_fingerprints_tell_inputs_apart_and_are_those_of_every_process",
    ),
    mutant(
        "axes_in_the_wrong_order",
        "the first axis of a sweep runs fastest, but the table says the last",
        ("experiments/sweeps.py:_values", replace("reversed(_a)", "_a")),
        tests=f"{SWEEPS}::test_the_table_has_the_numbers_of_each_run",
    ),
    # Programs that are kept on disk
    mutant(
        "programs_of_other_processors",
        "a program compiled for another processor is used",
        ("_programs/executable.py:_environment", replace("_processor()", "''")),
        tests=f"{PROGRAMS}::test_versions_sources_and_processor",
    ),
    mutant(
        "programs_of_changed_sources",
        "programs are kept although the sources have changed since they were imported",
        ("_programs/executable.py:as_loaded", replace("_a <= _IMPORTED", "True")),
        tests=f"{PROGRAMS}::test_sources_that_changed_since_they_were_imported_keep_nothing",
    ),
    mutant(
        "programs_that_ask",
        "a number that a function asks the type of becomes an argument",
        ("_programs/identity.py:_Reader._function", replace("asks and self.moves", "False")),
        tests=f"{PROGRAMS}::test_a_function_may_ask_what_it_was_given",
    ),
    mutant(
        "programs_that_read",
        "what reads files counts as known",
        ("_programs/identity.py:_code.described", replace("_READING.isdisjoint(_a)", "True")),
        tests=f"{PROGRAMS}::test_what_reads_the_world_is_read_again",
    ),
    mutant(
        "layouts_unchecked",
        "arrays of a layout that is not known are read",
        ("store/arrays.py:_read", replace("about == about | LAYOUT", "True")),
        tests=f"{ARRAYS}::test_arrays_that_claim_more_than_there_is",
    ),
    mutant(
        "rows_of_nothing",
        "an array of no numbers may have any number of rows",
        ("store/arrays.py:is_plain", replace("0 not in shape", "True")),
        tests=f"{ARRAYS}::test_arrays_of_no_numbers_have_few_rows",
    ),
    mutant(
        "unread_is_lost",
        "what the disk does not read counts as lost, and is removed",
        ("store/mending.py:_is_beyond", replace("isinstance(error.__cause__, OSError)", "False")),
        (
            "store/mending.py:_is_beyond",
            replace("(FileNotFoundError, NotADirectoryError, ValueError, KeyError)", "(OSError, ValueError, KeyError)"),
        ),
        tests=f"{SWEEPS}::test_what_the_disk_does_not_read_is_not_removed",
    ),
    mutant(
        "calls_forgotten",
        "a damaged call takes all states with it",
        ("store/mending.py:mend", drop("_refuse_the_only_ones")),
        tests=f"{JOURNAL}::test_a_call_that_is_damaged_is_restored_by_the_same_call",
    ),
    mutant(
        "calls_not_restored",
        "the same call leaves the damaged one",
        ("store/journal.py:Journal.begin", drop("restore_first")),
        tests=f"{JOURNAL}::test_a_call_that_is_damaged_is_restored_by_the_same_call",
    ),
    mutant(
        "figures_unseen",
        "figures that have changed count as those of the run",
        ("store/mending.py:_is_as_drawn", replace("files.fits(name, crc32)", "True")),
        tests="tests/experiments/test_runner.py::test_figures_that_are_gone_or_changed_are_told_and_drawn_again",
    ),
    mutant(
        "clashes_unseen",
        "a run is removed although something is in the way of the next one",
        ("store/folder.py:RunFolder._clear", replace("writer.in_segments()", "[]")),
        tests=f"{FOLDER}::test_what_would_be_in_the_way_of_the_next_run_stops_a_removal",
    ),
    mutant(
        "torn_lists_remove",
        "a damaged list tells what to remove",
        ("store/folder.py:RunFolder.clear", replace("files.torn", "False")),
        tests=f"{FOLDER}::test_a_damaged_list_removes_nothing_before_it_is_mended",
    ),
    mutant(
        "inputs_of_others",
        "what a killed run left is removed, though somebody has changed it",
        ("store/folder.py:RunFolder._clear", replace("writer.edited()", "[]")),
        tests="tests/experiments/test_model_run.py::test_an_input_that_was_changed_since_is_not_lost",
    ),
    mutant(
        "workers_hear",
        "Ctrl-C reaches processes that are just being started",
        ("experiments/pool.py:_unheard", replace("signal.SIG_BLOCK", "signal.SIG_UNBLOCK")),
        tests=f"{SWEEPS}::test_ctrl_c_in_a_terminal_is_for_the_parent_alone",
    ),
    mutant(
        "errors_of_callers",
        "the words of an error that a caller is handling are changed",
        ("_words.py:spell_out", replace("id(error.__traceback__.tb_frame) in callers", "False")),
        tests=f"{FOREIGN}::test_errors_of_the_caller_are_his",
    ),
]
