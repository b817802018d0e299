"""The explorer: who may ask, for how much, and what is sent."""

from ..mutators import assign, mutant, replace

SERVER = "tests/app/test_server.py"
CHECKED = "tests/app/test_checked.py"
POOL = "tests/app/test_pool.py"
PROTOCOL = "tests/app/test_protocol.py"
FUZZ = "tests/app/test_fuzz_socket.py"
STREAM = "tests/app/test_stream.py"

MUTANTS = [
    mutant(
        "any_host",
        "requests under any name of the host are heard",
        ("app/server.py:Guard.__call__", replace("_a not in self.settings.hosts", "False")),
        tests=f"{SERVER}::test_another_name_of_the_host_is_refused",
    ),
    mutant(
        "any_page",
        "requests of other pages are heard",
        ("app/server.py:Guard.__call__", replace("_a not in self._origins()", "False")),
        tests=f"{SERVER}::test_requests_of_other_pages_are_refused",
    ),
    mutant(
        "any_token",
        "an empty token is as good as the right one",
        ("app/server.py:Guard._knows_token", replace("any(_a)", "any(_a) or ''  in given")),
        tests=f"{SERVER}::test_without_the_token_nothing_is_told",
    ),
    mutant(
        "files_are_read",
        "an experiment of the page may name a file",
        ("app/checked.py:check_request", replace("_a in CLOSED", "False")),
        tests=f"{CHECKED}::test_no_file_is_read_wherever_it_hides",
    ),
    mutant(
        "numbers_unbounded",
        "a page may ask for any number of numbers",
        ("app/checked.py:check_experiment", replace("_a > limits.numbers", "False")),
        tests=CHECKED,
    ),
    mutant(
        "nesting_unbounded",
        "tables in tables without end",
        ("app/checked.py:_walk", replace("_a == 0", "False")),
        tests=CHECKED,
    ),
    mutant(
        "old_job_goes_on",
        "a new request in a slot leaves the old one running",
        ("app/session.py:Session.hear", replace("old is not None", "False")),
        tests=f"{FUZZ}::test_a_new_request_in_a_slot_cancels_the_old",
    ),
    mutant(
        "unaligned_arrays",
        "arrays begin anywhere",
        ("app/protocol.py", assign("ALIGNED", "1")),
        tests=f"{PROTOCOL}::test_each_array_begins_where_a_browser_can_look",
    ),
    mutant(
        "arrays_beyond_the_end",
        "an array may be longer than its message",
        ("app/protocol.py:unpack", replace("_a + size > _b", "False")),
        tests=PROTOCOL,
    ),
    mutant(
        "last_come_first_served",
        "the newest job is done first",
        ("app/pool.py:Pool._dispatch", replace("list(self.queue)", "list(self.queue)[::-1]")),
        tests=f"{POOL}::test_first_come_first_served_and_who_waits_is_told",
    ),
    mutant(
        "deaf_worker_stays",
        "a worker that does not listen keeps its job",
        ("app/pool.py:Pool._do", replace("_a > GRACE", "False")),
        tests=f"{POOL}::test_a_worker_that_does_not_listen_is_ended_and_the_next_job_served",
    ),
    mutant(
        "clerk_runs",
        "the clerk waits for runs",
        ("app/pool.py:Pool._chosen", replace("not worker.clerk", "True")),
        tests=f"{POOL}::test_the_clerk_runs_nothing",
    ),
    mutant(
        "radius_of_hidden_tokens",
        "tokens without weight count in the radius",
        ("app/stream.py:Curves.quick", replace("x[:, seen]", "x")),
        tests=f"{STREAM}::test_tokens_without_weight_have_no_radius",
    ),
    mutant(
        "last_frame_lost",
        "a run that ends between two save times lacks its last frame",
        ("app/stream.py:Stream.finish", assign("have", "len(run.times)")),
        tests=f"{STREAM}::test_a_blow_up_is_an_outcome",
    ),
]
