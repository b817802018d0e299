"""The explorer: who may ask, for how much, and what is sent."""

from ..mutators import assign, mutant, replace

GUARD = "tests/app/test_guard.py"
ACCESS = "tests/app/test_access.py"
CHECKED = "tests/app/test_checked.py"
POOL = "tests/app/test_pool.py"
PROTOCOL = "tests/app/test_protocol.py"
FUZZ = "tests/app/test_fuzz_socket.py"
STREAM = "tests/app/test_stream.py"

MUTANTS = [
    mutant(
        "any_host",
        "requests under any name of the host are heard",
        ("app/guard.py:Guard._refused", replace("_a not in self.hosts", "False")),
        tests=f"{GUARD}::test_another_name_of_the_host_is_refused",
    ),
    mutant(
        "port_left_out",
        "a name without its port is heard on any port",
        ("app/guard.py:Guard.__init__", assign("self.hosts", '(*hosts, *(host.rpartition(":")[0] for host in hosts))')),
        tests=f"{GUARD}::test_names_are_heard_as_browsers_write_them",
    ),
    mutant(
        "port_always_there",
        "a name without a port is not heard on port 80",
        ("app/guard.py:Guard.__init__", assign("self.hosts", "hosts")),
        tests=f"{GUARD}::test_the_port_that_browsers_leave_out",
    ),
    mutant(
        "any_page",
        "requests of other pages are heard",
        ("app/guard.py:Guard._refused", replace("_a not in self.origins", "False")),
        tests=f"{GUARD}::test_requests_of_other_pages_are_refused",
    ),
    mutant(
        "headers_twice",
        "a header may be given twice",
        ("app/guard.py:Guard._refused", replace("len(set(names)) < len(names)", "False")),
        tests=f"{GUARD}::test_a_header_given_twice_is_refused",
    ),
    mutant(
        "token_for_ever",
        "a token can be used again",
        ("app/access.py:Access.enter", assign("self._token", "token")),
        tests=f"{ACCESS}::test_a_token_works_once",
    ),
    mutant(
        "token_never_old",
        "a token does not expire",
        ("app/access.py:Access.pending", replace("_a < self._until", "True")),
        tests=f"{ACCESS}::test_a_token_is_forgotten_after_a_while",
    ),
    mutant(
        "cookie_is_enough",
        "a cookie opens the page without its place",
        ("app/access.py:Access.knows", replace("_same(place, known.place)", "True")),
        tests=f"{GUARD}::test_a_cookie_alone_opens_nothing",
    ),
    mutant(
        "place_is_enough",
        "the address of the page opens it without a cookie",
        ("app/access.py:Access.knows", replace("any(found)", "any(_same(place, k.place) for k in self.sessions)")),
        tests=f"{GUARD}::test_an_address_alone_opens_nothing",
    ),
    mutant(
        "strangers_stay",
        "connections that ask for nothing are never closed",
        ("app/connections.py:Connection.look", replace("waiting or _a", "False")),
        tests="tests/app/test_connections.py::test_half_open_connections_are_closed",
    ),
    mutant(
        "links_followed",
        "a run folder that is a link is replayed",
        ("app/runs.py:_odd", replace("folder.is_symlink()", "False")),
        tests="tests/app/test_runs.py::test_links_lead_nowhere",
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
