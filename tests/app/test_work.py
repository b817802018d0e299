"""Experiment files as the page reads them."""

import numpy as np
import pytest

from meanformer.app.work import read_text

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
