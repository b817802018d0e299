"""Refusals, as a user sees them."""

import contextlib

import jaxtyping
import pytest

import meanformer as mf


@contextlib.contextmanager
def as_users():
    """Without a checker of annotations, which the night has and users do not: we refuse, or nobody does."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def assert_refused(call, words):
    """`call` is refused, in a message with all these words."""
    with as_users(), pytest.raises(mf.InputError) as error:
        call()
    assert all(word in str(error.value) for word in words), str(error.value)
