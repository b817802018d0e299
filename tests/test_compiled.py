"""The suite's own settings of XLA."""

import compiled


def test_flags_that_this_xla_does_not_know_are_left_out(tmp_path):
    """A fresh machine may have a newer XLA, which ends the process at such a flag."""
    assert compiled.known("--xla_no_such_flag=1", tmp_path) == "" and not list(tmp_path.iterdir())
    assert compiled.known("--xla_cpu_enable_fast_math=false", tmp_path) == "--xla_cpu_enable_fast_math=false"
    (note,) = tmp_path.iterdir()
    assert note.read_text() == "--xla_cpu_enable_fast_math=false"
