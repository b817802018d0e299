"""The clustering theorems on runs that scipy has solved, and on runs that pretend (MATH h)."""

import jax.numpy as jnp
import numpy as np
import pytest
from _told import solved, told

import meanformer as mf
from meanformer.diagnostics.criteria import (
    boolean_attention,
    collapse_limit,
    hyperplane_limit,
    paranormal_limit,
    polytope_limit,
)
from oracles.refusals import assert_refused

I2, I3 = np.eye(2), np.eye(3)
TURN = np.array([[1.0, -0.3], [0.3, 0.8]])  # a symmetric part that is positive
TIMES = np.linspace(0, 8, 17)
LATE = np.array([0.0, 10, 50, 100, 200])


def cube(n, d, seed, size=5.0):
    return np.random.default_rng(seed).uniform(-size, size, (n, d))


def field(A, V):
    A = np.asarray(A, float)
    return mf.Softmax(np.eye(len(A)), A.T, V)


@pytest.fixture(scope="module")
def polytope():
    return solved(I2, I2, cube(12, 2, 0), TIMES)


# What the theorems say is seen


def test_polytope(polytope):
    verdict = polytope_limit(polytope)
    assert verdict.holds is True
    z = np.exp(-8) * np.asarray(polytope.points[-1])
    assert verdict.evidence["defect"] <= 1e-12 and verdict.evidence["hull_growth"] <= 1e-8  # row 27
    # By definition: of each cluster, the best |z|^2 / max z.z_l; all are about e^-8 from it.
    excess = (z @ z.T).max(axis=1) / (z * z).sum(axis=1) - 1
    np.testing.assert_allclose(verdict.evidence["worst_token"], excess.max(), rtol=1e-9)
    assert 1e-5 < verdict.evidence["worst_token"] < 1e-2
    assert verdict.evidence["clusters"] == mf.clusters(mf.PointCloud(z)).count == len(verdict.evidence["limits"])


def test_polytope_of_a_general_matrix():
    r"""The limits maximise $(Az)\cdot z_l$ at themselves. Judged by the transpose of A, some of them do not."""
    fooled = []
    for seed in range(6):
        run = solved(TURN, I2, cube(12, 2, seed), np.linspace(0, 12, 25))
        assert polytope_limit(run).holds is True
        fooled.append(polytope_limit(told(field(TURN.T, I2), run.times, run.points)).holds)
    assert fooled.count(False) >= 2


def test_both_frames():
    """The library's own run, with V = 2 I and a temperature."""
    run = mf.flow(
        mf.Softmax(I2, I2, 2 * I2, tau=2.0), mf.PointCloud(cube(12, 2, 1)), t1=4.0, frame=mf.Rescaled(), save=9
    )
    inside, outside = polytope_limit(run), polytope_limit(run.original())
    assert inside.holds is True and outside.holds is True
    for key in ("clusters", "worst_token", "straggler"):
        np.testing.assert_allclose(inside.evidence[key], outside.evidence[key], rtol=1e-6)


def test_hyperplanes():
    verdict = hyperplane_limit(solved(I3, np.diag([1.0, 0.5, -0.2]), cube(12, 3, 2), TIMES))
    assert verdict.holds is True and verdict.evidence["hyperplanes"] <= 3 and verdict.evidence["width"] < 0.01
    assert verdict.evidence["rate"] == pytest.approx(1, abs=1e-12)


def test_hyperplanes_in_a_sheared_basis():
    """The coordinate is that of the left eigenvector: in other coordinates the same run gives the same numbers."""
    V, x = np.diag([1.0, 0.5, -0.2]), cube(12, 3, 2)
    run = solved(I3, V, x, TIMES)
    M = I3 + 0.4 * np.random.default_rng(5).normal(size=(3, 3))
    back = np.linalg.inv(M)
    same = told(field(back.T @ back, M @ V @ back), run.times, np.asarray(run.points) @ M.T)
    values = hyperplane_limit(run).evidence, hyperplane_limit(same).evidence
    assert hyperplane_limit(same).holds is True
    assert values[0]["hyperplanes"] == values[1]["hyperplanes"]
    np.testing.assert_allclose(values[0]["width"], values[1]["width"], rtol=1e-6)


def test_paranormal():
    verdict = paranormal_limit(solved(I3, np.diag([1.0, 1.0, 0.3]), cube(12, 3, 2), TIMES))
    assert verdict.holds is True and verdict.evidence["dimension"] == 2
    # It contains the other two: F is all, or a line.
    assert paranormal_limit(solved(I2, I2, cube(12, 2, 0), TIMES)).evidence["dimension"] == 2
    assert paranormal_limit(solved(I3, np.diag([1.0, 0.5, -0.2]), cube(12, 3, 2), TIMES)).evidence["dimension"] == 1


def test_boolean():
    run = solved([[1.0]], [[1.0]], cube(8, 1, 4), TIMES)
    verdict = boolean_attention(run)
    x = np.asarray(run.points[-1, :, 0])
    assert verdict.holds is True and verdict.evidence["rank"] == 2
    assert set(verdict.evidence["leaders"]) == {x.argmin(), x.argmax()}


def test_boolean_with_its_exceptional_row():
    """A token at 0 among symmetric ones stays there and listens to all alike: one such row is allowed, two are not."""
    x, one = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]]), field([[1.0]], [[1.0]])
    final = np.exp(8) * np.array([[-2.0], [-1.999], [0.0], [1.999], [2.0]])
    verdict = boolean_attention(told(one, [0.0, 8.0], [x, final]))
    assert verdict.holds is True and verdict.evidence["exceptional_row"] == pytest.approx(0.2, abs=1e-12)
    final[3] = 1e-12
    assert boolean_attention(told(one, [0.0, 8.0], [x, final])).holds is False


def test_collapse():
    """MATH h: the radius is about 0.107 at t = 200 from tokens of size one, and falls like $t^{-1/2}$."""
    x = np.random.default_rng(6).normal(size=(8, 2))
    verdict = collapse_limit(solved(I2, -I2, x, LATE))
    assert verdict.holds is True and verdict.evidence["exponent"] == pytest.approx(-0.5, abs=0.02)
    assert 0.05 < verdict.evidence["radius"] < 0.2 and verdict.evidence["mean"] < 1e-3


# What is not so is not seen. (Repulsion, K = -Q, is no such case: it gathers the tokens z in one point, and a point is
# a polytope, and lies in one hyperplane.)


def test_tokens_that_do_not_grow_or_shrink():
    x = cube(8, 1, 4, 1.0)
    assert boolean_attention(told(field([[1.0]], [[1.0]]), TIMES, np.repeat(x[None], 17, 0))).holds is False
    y = np.random.default_rng(6).normal(size=(8, 2))
    assert collapse_limit(told(field(I2, -I2), LATE, np.repeat(y[None], 5, 0))).holds is False
    # An exponential collapse is another law, and a mean that stays is no collapse to 0.
    assert collapse_limit(told(field(I2, -I2), LATE, np.exp(-LATE / 50)[:, None, None] * y)).holds is False
    spread = (1 + LATE)[:, None, None] ** -0.5 * (y - y.mean(axis=0))
    assert collapse_limit(told(field(I2, -I2), LATE, spread)).holds is True
    assert collapse_limit(told(field(I2, -I2), LATE, spread + 0.01)).holds is False
    assert collapse_limit(told(field(I2, -I2), LATE / 20, np.repeat(y[None], 5, 0))).holds is None


STILL = {
    polytope_limit: (I2, I2, cube(30, 2, 7)),
    hyperplane_limit: (I3, np.diag([1.0, 0.5, 0.2]), cube(200, 3, 7)),
    paranormal_limit: (I3, np.diag([1.0, 1.0, 0.3]), cube(30, 3, 7)),
}


@pytest.mark.parametrize("criterion", STILL)
def test_tokens_that_stand_still_elsewhere(criterion):
    r"""Tokens that are spread evenly in the frame $z$, and stay: a clear no. The same in a short run says nothing."""
    A, V, z = STILL[criterion]
    points = np.exp(TIMES[:, None] * np.diag(V))[:, None] * z
    assert criterion(told(field(A, V), TIMES, points)).holds is False
    short = criterion(told(field(A, V), TIMES[:5], points[:5]))
    assert short.holds is None and "too short: 2 of 8" in str(short)


def test_tokens_that_still_move():
    points = np.exp(TIMES)[:, None, None] * np.linspace(1, 0.2, 17)[:, None, None] * cube(30, 2, 7)
    verdict = polytope_limit(told(field(I2, I2), TIMES, points))
    assert verdict.holds is None and "tokens still move" in str(verdict)


def test_a_hull_that_grows_and_a_straggler(polytope):
    x = np.array(polytope.points)
    grown = x.copy()
    grown[8] *= 1.001
    assert polytope_limit(told(polytope.field, TIMES, grown)).evidence["hull_growth"] > 1e-5
    assert polytope_limit(told(polytope.field, TIMES, grown)).holds is False
    # One token on the way between two clusters, far from both, and at rest.
    late = x.copy()
    ends = polytope_limit(polytope).evidence["limits"][:2]
    late[:, 0] = np.exp(TIMES)[:, None] * (0.6 * ends[0] + 0.3 * ends[1])
    verdict = polytope_limit(told(polytope.field, TIMES, late))
    assert verdict.holds is False and verdict.evidence["straggler"] > 0.03


def test_rounding_in_the_frame():
    """Directions of negative eigenvalues grow in the frame until they hide the others: then nothing is said."""
    run = mf.flow(
        mf.Softmax(I2, I2, np.diag([1.0, -0.5])), mf.PointCloud(cube(12, 2, 1)), t1=4.0, frame=mf.Rescaled(), save=9
    )
    assert hyperplane_limit(run).holds is not False
    z = np.array(run.saved[0])
    z[-1, :, 1] *= 1e16
    tilted = type(run)(run.times, (jnp.asarray(z), run.saved[1]), run.last, run.outcome, run.stats, run.system, False)
    verdict = hyperplane_limit(tilted)
    assert verdict.holds is None and "lost in rounding" in str(verdict)


# Hypotheses


def words_of(verdict):
    assert verdict.holds is None and not verdict.evidence
    return verdict.hypotheses


def test_hypotheses():
    x, t = cube(6, 2, 0), np.array([0.0, 8.0])
    still = [x, x]
    assert "V = c I" in words_of(polytope_limit(told(field(I2, np.diag([1.0, 2.0])), t, still)))
    assert "A + A^T > 0" in words_of(polytope_limit(told(field(np.diag([1.0, -1.0]), I2), t, still)))
    assert "equal weights" in words_of(polytope_limit(told(field(I2, I2), t, still, [0.2, 0.2, 0.2, 0.2, 0.1, 0.1])))
    assert "one softmax head" in words_of(polytope_limit(told(mf.L2(I2, I2, I2), t, still)))
    biased = mf.Softmax(I2, I2, I2, key_bias=[1.0, 0.0])
    assert "one softmax head" in words_of(polytope_limit(told(biased, t, still)))
    assert "continuous time" in words_of(polytope_limit(told(field(I2, I2), t, still, discrete=True)))
    on_sphere = x / np.linalg.norm(x, axis=1, keepdims=True)
    run = told(field(I2, I2), t, [on_sphere, on_sphere], space=mf.Sphere())
    assert "Euclidean" in words_of(polytope_limit(run))
    for V in (I2, np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[0.0, -1.0], [1.0, 0.0]]), -I2, np.diag([1.0, -1.0])):
        assert "real, positive and simple" in words_of(hyperplane_limit(told(field(I2, V), t, still)))
    # The eigenvector of the top is e_1, where A is negative.
    run = told(field(np.diag([-1.0, 1.0]), np.diag([1.0, 0.5])), t, still)
    assert "Q phi . K phi > 0" in words_of(hyperplane_limit(run)) and "Qx . Kx > 0 on F" in words_of(
        paranormal_limit(run)
    )
    jordan = told(field(I2, np.array([[1.0, 1.0], [0.0, 1.0]])), t, still)
    assert "V = c I with c > 0 on an invariant F" in words_of(paranormal_limit(jordan))
    assert "V = -c I" in words_of(collapse_limit(told(field(I2, I2), t, still)))
    assert "A = A^T > 0" in words_of(collapse_limit(told(field(TURN, -I2), t, still)))
    assert "d = 1" in words_of(boolean_attention(told(field(I2, I2), t, still)))
    twins = np.array([[1.0], [1.0], [2.0]])
    assert "distinct" in words_of(boolean_attention(told(field([[1.0]], [[1.0]]), t, [twins, twins])))


def test_tokens_of_zero_weight_are_not_looked_at(polytope):
    x = np.concatenate([np.array(polytope.points), np.zeros((17, 1, 2)) + 1e3], axis=1)
    weights = np.append(np.full(12, 1 / 12), 0)
    verdict = polytope_limit(told(polytope.field, TIMES, x, weights))
    assert verdict.holds is True
    np.testing.assert_allclose(verdict.evidence["worst_token"], polytope_limit(polytope).evidence["worst_token"])


def test_the_sentence(polytope):
    text = str(polytope_limit(polytope))
    assert text.startswith("Seen: z = e^(-tV) x tends to 0 and to points of the boundary") and "\n" not in text
    assert "A + A^T > 0" in text and "worst token" in text and "limits" not in text
    assert_refused(lambda: polytope_limit(polytope.final), ("polytope_limit takes a run of tokens",))
