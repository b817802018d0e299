"""B1 to B4: verdicts that can fail, and the published integrator taken apart."""

import io

import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.experiments.reproductions.geshkovski2023 import PAPER, attention, hyperplanes, integrator, polytope
from meanformer.report.references import BIBTEX


def drawn(figure):
    """The figure can be drawn."""
    figure.savefig(io.BytesIO(), format="png", dpi=30)


def test_the_paper_has_its_items_in_order():
    assert PAPER.key == "geshkovski2023" and list(PAPER.items) == ["B1", "B2", "B3", "B4"]
    assert all(item.id == key and item.setting for key, item in PAPER.items.items())
    assert "2305.05465" in PAPER.url and PAPER.bibtex == BIBTEX["geshkovski2023"]


SQUARE = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])


def polytope_verdict(holds=True, straggler=0.001, growth=1e-9, limits=SQUARE):
    evidence = {"clusters": len(limits), "straggler": straggler, "hull_growth": growth, "limits": limits}
    return mf.Verdict(holds, "claim", "hypotheses", evidence)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, ["holds"] * 4),
        ({"holds": False}, ["fails", "holds", "holds", "holds"]),
        ({"holds": None}, ["undecided", "holds", "holds", "holds"]),
        ({"straggler": 0.1}, ["holds", "fails", "holds", "holds"]),
        ({"growth": 1e-3}, ["holds", "holds", "fails", "holds"]),
        ({"limits": np.concatenate([SQUARE, 0.1 * SQUARE])}, ["holds", "holds", "holds", "fails"]),
    ],
)
def test_polytope_rows(wrong, words):
    rows = polytope.polytope_rows(polytope.CASES[0], [polytope_verdict(), polytope_verdict(**wrong)])
    assert [row.verdict for row in rows] == words


def test_a_row_that_cannot_fail_says_so():
    short, long = (polytope.polytope_rows(case, [polytope_verdict()])[0].why for case in polytope.CASES)
    assert "cannot fail" in short and long == ""


def test_vertices_are_counted():
    assert polytope.at_vertices(np.concatenate([SQUARE, np.zeros((1, 2))])) == 4
    assert polytope.at_vertices(SQUARE[:2]) == 2


@pytest.mark.parametrize(
    ("holds", "planes", "width", "words"),
    [(True, 3, 0.01, ["holds", "holds"]), (False, 4, 0.01, ["fails", "holds"]), (None, 3, 0.2, ["undecided", "fails"])],
)
def test_hyperplane_rows(holds, planes, width, words):
    verdict = mf.Verdict(holds, "claim", "hypotheses", {"hyperplanes": planes, "width": width})
    assert [row.verdict for row in hyperplanes.hyperplane_rows([verdict], 0)] == words


def test_positive_matrices_have_a_simple_top_and_rejected_ones_are_counted():
    total = 0
    for seed in range(40):
        V, rejected = hyperplanes.positive_matrix(np.random.default_rng(seed))
        values = np.sort(np.abs(np.linalg.eigvals(V)))
        assert (V > 0).all() and abs(values[-1] - 1) < 1e-12 and values[-2] <= 0.5
        drawn = np.random.default_rng(seed).random((rejected + 1, 3, 3))  # the accepted one is the last
        np.testing.assert_allclose(drawn[-1] / np.abs(np.linalg.eigvals(drawn[-1])).max(), V)
        total += rejected
    assert total == 2
    verdict = mf.Verdict(True, "claim", "hypotheses", {"hyperplanes": 2, "width": 0.01})
    assert "2 draws of V left out" in hyperplanes.hyperplane_rows([verdict], total)[0].why
    assert "drawn again" in hyperplanes.ITEM.setting


def test_boolean_rows():
    P = np.zeros((6, 6))
    P[:3, 0] = P[3:, -1] = 1

    def words(holds=True, rank=2, off=0.0, leaders=2, last=P):
        evidence = {"rank": rank, "off_boolean": off, "leaders": np.arange(leaders)}
        verdict = mf.Verdict(holds, "claim", "hypotheses", evidence)
        return [row.verdict for row in attention.boolean_rows([verdict], [last])]

    assert attention.distinct_rows(P) == 2
    assert words() == ["holds"] * 4
    assert words(holds=False, rank=3) == ["fails", "holds", "holds", "holds"]
    assert words(last=np.eye(6)) == ["holds", "fails", "holds", "holds"]
    assert words(off=0.3) == ["holds", "holds", "fails", "holds"]
    assert words(leaders=4) == ["holds", "holds", "holds", "fails"]


def test_boolean_attention_is_seen_on_the_line():
    run = polytope.identity_run(1, 12, 8.0, 0)
    last = attention.sorted_matrix(run, -1)
    assert [row.verdict for row in attention.boolean_rows([mf.boolean_attention(run)], [last])] == ["holds"] * 4
    # Sorted along the line, only the first and the last column are left.
    assert last[:, 1:-1].max() < attention.SMALL
    drawn(attention.boolean_figure(run))


def velocity(z, t):
    """The right-hand side of the published script with V = Q = K = I, token by token."""
    n = len(z)
    out = np.zeros_like(z)
    for i in range(n):
        weights = np.array([np.exp(np.exp(2 * t) * (z[i] @ (z[j] - z[i]))) for j in range(n)])
        out[i] = sum(weights[j] / weights.sum() * (z[j] - z[i]) for j in range(n))
    return out


def test_the_published_step_is_that_of_euler_and_a_residual_layer():
    z = np.random.default_rng(0).uniform(-2, 2, (5, 2))
    step, t = 0.1, 0.2
    np.testing.assert_allclose(integrator.frozen_runge_kutta(z, t, step), z + step * velocity(z, t), atol=1e-13)
    path = integrator.published(z, 0.3, step)
    np.testing.assert_allclose(path[1], z + step * velocity(z, 0.0), atol=1e-13)
    layers = integrator.euler(mf.PointCloud(z), 0.3, step)
    assert integrator.apart(layers.points, path) < 1e-14


def test_the_moving_frame_as_a_field():
    z = np.random.default_rng(1).uniform(-1, 1, (4, 2))
    found = mf.velocity(integrator.rescaled_field(2), mf.PointCloud(z), 0.7)
    np.testing.assert_allclose(found, velocity(z, 0.7), atol=1e-12)


def fake_comparison(order, layers=1e-16, spread=1.0):
    """Errors of a given order, and a higher method that is far better."""
    steps, times, z = (0.1, 0.05), np.linspace(0, 5, integrator.SAVE), np.tile(SQUARE, (integrator.SAVE, 1, 1))

    class Flow:
        points, times_ = jnp.asarray(z), times

        def clusters(self):
            return mf.clusters(mf.PointCloud(z[-1]))

    Flow.times = times
    errors = {step: step**order for step in steps}
    paths = {step: spread * z + step**order for step in steps}
    return integrator.Compared(Flow(), paths, layers, errors, {step: 1e-3 * step**5 for step in steps}), steps


@pytest.mark.parametrize(("order", "word"), [(1, "misleads"), (2, "misleads"), (4, "holds")])
def test_the_order_tells_whether_the_name_misleads(order, word):
    found, steps = fake_comparison(order)
    rows = integrator.integrator_rows([found], steps)
    assert [row.verdict for row in rows[:2]] == ["holds", word] and abs(rows[1].ours - order) < 1e-9
    assert rows[-1].verdict == "holds"
    drawn(integrator.integrator_figure([found], steps))


def test_other_layers_and_other_clusters_are_told():
    found, steps = fake_comparison(1, layers=1e-3, spread=0.0)
    rows = integrator.integrator_rows([found], steps)
    assert rows[0].verdict == "fails" and rows[-1].verdict == "misleads"
