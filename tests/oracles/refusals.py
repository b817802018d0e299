"""Refusals, as a user sees them."""

import jaxtyping
import pytest

import meanformer as mf


def assert_refused(call, words):
    """`call` is refused, in a message with all these words."""
    jaxtyping.config.update("jaxtyping_disable", True)  # users have no annotation checker
    try:
        with pytest.raises(mf.InputError) as error:
            call()
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    assert all(word in str(error.value) for word in words), str(error.value)
