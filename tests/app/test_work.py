"""The jobs of a worker: experiment files as the page reads them, and what a run says first."""

import json

import jax
import jax.monitoring
import numpy as np
import pytest

from app._pages import SMALL, Answer, Answers, changed
from meanformer.app import work
from meanformer.app.protocol import unpack
from meanformer.app.work import read_text
from meanformer.experiments.build import build
from meanformer.experiments.config import from_settings

SOFTMAX = '[attention]\nkind = "softmax"\nQ = "identity"\nK = {of = "Q", scale = -1.0}\nV = "identity"\n'


@pytest.mark.parametrize("cov", ["cov = {diagonal = [4.0, 0.25]}", "factor = [[2.0, 0.0], [0.0, 0.5]]"])
def test_a_gaussian_has_its_covariance_written_out(cov):
    found = read_text(f'{SOFTMAX}[measure]\nkind = "gaussian"\n{cov}\n[flow]\nt1 = inf\n')["experiment"]
    assert found["measure"] == {"kind": "gaussian", "cov": [[4.0, 0.0], [0.0, 0.25]]}
    assert found["attention"]["K"] == [[-1.0, 0.0], [0.0, -1.0]] and found["flow"] == {"t1": "inf"}


def test_matrices_that_are_drawn_become_numbers_unless_each_layer_draws_its_own():
    attention = '[attention]\nkind = "softmax"\nQ = {random = "normal"}\nK = "identity"\nV = "identity"\n'
    tokens = '[measure]\nkind = "ball"\nn = 4\n'
    once = read_text(f"{attention}{tokens}[layers]\ndepth = 2\n")["experiment"]["attention"]["Q"]
    assert np.asarray(once).shape == (2, 2)
    each = read_text(f"{attention}{tokens}[layers]\ndepth = 2\nredraw = true\n")["experiment"]["attention"]["Q"]
    assert each["random"] == "normal"


class Desk:
    """Collects what a job answers, with the number of programs that had been compiled by then."""

    def __init__(self):
        self.cancelled: set[int] = set()
        self.answers, self.counts, self.programs = Answers(), [], 0

    def answer(self, letter: bytes, data: bytes) -> None:
        self.answers.append(Answer(*unpack(data)) if letter == b"b" else Answer(json.loads(data), {}))
        self.counts.append(self.programs)

    def count(self, event: str, seconds: float, **_) -> None:
        self.programs += event == "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def desk():
    made = Desk()
    jax.monitoring.register_event_duration_secs_listener(made.count)
    yield made
    jax.monitoring.unregister_event_duration_listener(made.count)


def job(experiment) -> dict:
    return {"do": "run", "id": 1, "slot": "main", "run": 7, "experiment": experiment}


class Begun(Exception):
    """The measure is there."""


LINE = {
    "attention": {"kind": "softmax", "Q": [[1.0]], "K": [[1.0]], "V": [[-1.0]]},
    "measure": {"kind": "density", "of": {"kind": "gaussian", "d": 1}, "cells": 17},
    "flow": {"t1": 0.2},
}


@pytest.mark.parametrize("experiment", [changed(SMALL, measure={"n": 17}), LINE], ids=["tokens", "density"])
def test_the_start_is_sent_before_anything_is_compiled(experiment, desk, monkeypatch):
    """Anything beside the measure itself, which has been made and looked at once before."""

    def begun(verb, measure, options):
        work.Stream(lambda *_: None, lambda *_: None, lambda: True, 1.0, 2).start(verb, measure, options)
        raise Begun

    with pytest.raises(Begun):
        build(from_settings(experiment, "page", work.NOWHERE), begun=begun)
    monkeypatch.setattr(work, "run_problem", lambda *_: jax.jit(lambda x: x + len(desk.answers))(1.0))
    before = desk.programs
    work.do(job(experiment), desk)
    assert [answer["say"] for answer in desk.answers] == ["start", "doing"]
    assert desk.counts[0] == before < desk.programs, "what is compiled comes later, and is counted"
    start = desk.answers.one("start")
    if start["of"] == "tokens":
        assert start.arrays["points"].shape == (17, 2) and start["t1"] == 0.5
    else:
        np.testing.assert_allclose(start.arrays["density"].sum() * start["spacing"], 1.0, rtol=1e-12)


def test_a_start_may_be_refused(desk):
    """The page shows it, and then says what is wrong with the field."""
    work.do(job(changed(SMALL, attention={"V": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]})), desk)
    assert [answer["say"] for answer in desk.answers] == ["start", "doing", "refused"]
    assert desk.answers.one("refused")["path"][0] == "attention"
