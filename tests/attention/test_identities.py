"""The identities of attention, rows 1 to 20 of the table in the mathematical specification, at its tolerances.

All problems have one shape (6 tokens, d = k = 2), so that values change and compiled programs do not.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import meanformer as mf
from oracles import dense, draws
from oracles.dense import AVERAGING, KINDS, SINKHORN, error, rows
from oracles.draws import problems

every_kind = pytest.mark.parametrize("kind", KINDS)
averaging = pytest.mark.parametrize("kind", AVERAGING)
sinkhorn = pytest.mark.parametrize("kind", SINKHORN)


def agree(got, want, tolerance):
    """Equal up to `tolerance`, relative to the largest entry if that is above 1."""
    assert error(got, want, floor=1.0) <= tolerance


def kernel(problem, kind, potentials):
    """$e^{f_i+g_j+c_{ij}}$ in extended precision, from the potentials of the library."""
    C = dense.logits(kind, rows(problem.Q, problem.X), rows(problem.K, problem.X), problem.tau)
    return np.exp(dense.wide(potentials.f)[:, None] + dense.wide(potentials.g) + C)


@every_kind
@given(p=problems())
def test_row_00_field_is_the_dense_one(kind, p):
    """Before any identity: the field is its definition, at random points of a random weighted cloud."""
    assume(kind != "hardmax" or p.gap() > 1e-9)
    agree(p.field(kind)(p.cloud, p.x), dense.velocity(kind, p.x, *p.arguments()), 1e-11 if kind in SINKHORN else 1e-13)


@averaging
@given(p=problems())
def test_row_01_rows_sum_to_one(kind, p):
    agree(p.field(kind).matrix(p.cloud).sum(axis=1), np.ones(6), 1e-14)


@given(p=problems(), u=draws.arrays(2))
def test_row_02_softmax_ignores_a_shift_per_row(p, u):
    """One more key coordinate, always 1, paired with the query coordinate $10^3(1+u\\cdot x)$."""
    shifted = p.field("softmax").maps
    Q = np.vstack([shifted.Q, 1e3 * p.tau * u])
    K = np.vstack([shifted.K, np.zeros(2)])
    field = mf.Softmax(Q, K, p.V, p.tau, query_bias=[0, 0, 1e3 * p.tau], key_bias=[0, 0, 1.0])
    agree(field(p.cloud, p.x), p.field("softmax")(p.cloud, p.x), 1e-11)


@averaging
@settings(max_examples=6)
@given(p=problems(size=1e3))
def test_row_03_convex_hull_of_large_tokens(kind, p):
    p = p.but(V=np.eye(2))
    velocity = np.asarray(p.field(kind)(p.cloud, p.x))
    support = p.X[p.w > 0]
    assert np.isfinite(velocity).all()
    assert (velocity >= support.min(0) - 1e-9).all() and (velocity <= support.max(0) + 1e-9).all()


@pytest.mark.parametrize("kind", [*AVERAGING, "sigmoid"])
@settings(max_examples=3)
@given(p=problems(size=1e4))
def test_row_03_no_overflow_at_1e4(kind, p):
    p = p.but(V=np.eye(2))
    velocity = np.asarray(p.field(kind)(p.cloud, p.x))
    assert np.isfinite(velocity).all() and np.abs(velocity).max() <= np.abs(p.X).max() * (1 + 1e-12)


@given(p=problems())
def test_row_04_l2_is_softmax_reweighted(p):
    w = p.w * np.exp(-((p.X @ p.K.T) ** 2).sum(1) / p.tau)
    other = mf.Softmax(2 * p.Q, p.K, p.V, p.tau)
    agree(p.field("l2")(p.cloud, p.x), other(mf.PointCloud(p.X, w / w.sum()), p.x), 1e-12)


@every_kind
@given(p=problems(), share=st.floats(0.05, 0.95))
def test_row_05_splitting_a_particle(kind, p, share):
    whole_w = np.append(p.w[:4], p.w[4] + p.w[5])
    split_w = np.append(p.w[:4], (share * whole_w[4], (1 - share) * whole_w[4]))
    whole, split = mf.PointCloud(p.X[:5], whole_w), mf.PointCloud(p.X[[0, 1, 2, 3, 4, 4]], split_w)
    assume(kind != "hardmax" or p.but(X=p.X[:5], w=whole_w).gap() > 1e-9)
    field = p.field(kind)
    agree(field(split, p.x), field(whole, p.x), 1e-11 if kind in SINKHORN else 1e-13)


@every_kind
@given(p=problems(), order=st.permutations(range(6)))
def test_row_06_permutation_equivariance(kind, p, order):
    assume(kind != "hardmax" or p.gap() > 1e-9)
    field = p.field(kind)
    shuffled = mf.PointCloud(p.X[order], p.w[order])
    agree(field(shuffled, p.x[order]), np.asarray(field(p.cloud, p.x))[order], 1e-13)


@every_kind
@given(p=problems(), shear=draws.arrays((2, 2), 0.4))
def test_row_07_gl_equivariance(kind, p, shear):
    assume(kind != "hardmax" or p.gap() > 1e-9)
    M = np.eye(2) + shear
    back = np.linalg.inv(M)
    moved = p.but(X=p.X @ M.T, Q=p.Q @ back, K=p.K @ back, V=M @ p.V @ back)
    agree(moved.field(kind)(moved.cloud, p.x @ M.T), np.asarray(p.field(kind)(p.cloud, p.x)) @ M.T, 1e-11)


@sinkhorn
@given(p=problems())
def test_row_08_sinkhorn_marginals(kind, p):
    found = p.field(kind, tol=1e-13).potentials(p.cloud)
    k, w = kernel(p, kind, found), dense.wide(p.w)
    agree(k @ w, np.ones(6), 1e-12)
    agree(w @ k, np.ones(6), 1e-12)
    assert abs(float(p.w @ np.where(p.w > 0, found.g, 0))) < 1e-12  # the gauge


@given(p=problems())
def test_row_09_sinkhorn_distance_is_dot_at_half_temperature(p):
    half = p.but(tau=p.tau / 2)
    agree(p.field("sinkhorn_l2")(p.cloud, p.x), half.field("sinkhorn_dot")(p.cloud, p.x), 1e-11)


@sinkhorn
@given(p=problems())
def test_row_10_sinkhorn_mean(kind, p):
    agree(p.w @ np.asarray(p.field(kind)(p.cloud, p.X)), p.V @ p.mean, 1e-11)


@pytest.mark.parametrize("kind", ["l2", *SINKHORN])
@given(p=problems(), shift=draws.arrays(2, 2.0))
def test_row_11_translation_covariance(kind, p, shift):
    p = p.but(K=p.Q) if kind == "l2" else p
    moved = p.but(X=p.X + shift)
    want = np.asarray(p.field(kind)(p.cloud, p.x)) + p.V @ shift
    agree(moved.field(kind)(moved.cloud, p.x + shift), want, 1e-11)


@sinkhorn
@given(p=problems(), S=draws.arrays((2, 2)))
def test_row_12_symmetric_potentials(kind, p, S):
    """With $A=K^\\top SK$ symmetric, $f-g$ is constant (for the distance kernel: up to $(|Qx|^2-|Kx|^2)/\\tau$)."""
    p = p.but(Q=(S + S.T) / 2 @ p.K)
    found = p.field(kind).potentials(p.cloud)
    difference = np.asarray(found.f - found.g)
    if kind == "sinkhorn_l2":
        difference = difference - (((p.X @ p.Q.T) ** 2).sum(1) - ((p.X @ p.K.T) ** 2).sum(1)) / p.tau
    assert np.ptp(difference) <= 1e-10


@sinkhorn
@given(p=problems(), guess=draws.arrays(6, 3.0), nudge=draws.arrays((6, 2), 0.05))
def test_row_13_warm_start_is_cold_start(kind, p, guess, nudge):
    """From any guess, and from the potentials of a nearby cloud as along a flow."""
    tol = 1e-10
    cold = p.field(kind, tol=tol)
    want = cold(p.cloud, p.x)
    nearby = cold.potentials(mf.PointCloud(p.X + nudge, p.w)).g
    C = dense.logits(kind, dense.rows(p.Q, p.x), dense.rows(p.K, p.X), p.tau)
    for start in (jnp.asarray(guess), nearby):
        warm = cold.potentials(p.cloud, start)
        assert bool(warm.converged)
        # Off the support and on it, only g matters.
        with np.errstate(divide="ignore"):
            velocity = dense.normalised(C + np.asarray(warm.g) + np.log(p.w)) @ (p.X @ p.V.T)
        assert error(velocity, want, floor=1.0) <= 10 * tol


@given(p=problems())
def test_row_14_sigmoid_and_its_mirror(p):
    mirror = p.but(Q=-p.Q, b=-p.b)
    total = p.field("sigmoid")(p.cloud, p.x) + mirror.field("sigmoid")(p.cloud, p.x)
    agree(total, np.tile(p.V @ p.mean, (6, 1)), 1e-13)


@given(p=problems())
def test_row_15_sigmoid_limits(p):
    mean = np.tile(p.V @ p.mean, (6, 1))
    agree(p.but(b=40.0).field("sigmoid")(p.cloud, p.x), mean, 1e-13)
    flat = p.but(Q=np.zeros((2, 2)))
    agree(flat.field("sigmoid")(p.cloud, p.x), mean / (1 + np.exp(-p.b)), 1e-13)


@given(p=problems())
def test_row_16_usa_is_softmax_times_partition(p):
    C = dense.logits("usa", rows(p.Q, p.x), rows(p.K, p.X), p.tau)
    Z = np.exp(C) @ dense.wide(p.w)
    agree(p.field("usa")(p.cloud, p.x), Z[:, None] * np.asarray(p.field("softmax")(p.cloud, p.x)), 1e-12)


@given(p=problems(), tau=st.floats(0.005, 1.0))
def test_row_17_softmax_tends_to_hardmax(p, tau):
    r"""$|\Gamma^\tau-\Gamma^0|\le2\|V\|R\,\frac{1-w_*}{w_*}e^{-gap/\tau}$ at each query, rounding apart."""
    seen = p.w > 0
    C = (p.x @ p.Q.T) @ (p.X @ p.K.T)[seen].T
    order = np.sort(C, axis=1)
    assume(seen.sum() > 1 and p.gap() > 1e-9)
    gap = order[:, -1] - order[:, -2]
    w = p.w[seen][C.argmax(axis=1)]
    spread = 2 * np.linalg.norm(p.V, 2) * np.linalg.norm(p.X, axis=1).max()
    difference = p.but(tau=tau).field("softmax")(p.cloud, p.x) - p.field("hardmax")(p.cloud, p.x)
    distance = np.linalg.norm(np.asarray(difference), axis=1)
    assert (distance <= spread * (1 - w) / w * np.exp(-gap / tau) * (1 + 1e-10 / tau) + 1e-14).all()


@pytest.mark.parametrize("zero", ["Q", "K"])
@pytest.mark.parametrize("kind", ["softmax", "l2", *SINKHORN])
@given(p=problems())
def test_row_18_flat_kernel_averages(kind, zero, p):
    p = p.but(**{zero: np.zeros((2, 2))})
    w = p.w
    if kind == "l2" and zero == "Q":  # the keys still weigh
        w = w * np.exp(-((p.X @ p.K.T) ** 2).sum(1) / p.tau)
    agree(p.field(kind)(p.cloud, p.x), np.tile(p.V @ (w @ p.X) / w.sum(), (6, 1)), 1e-14)


@every_kind
@settings(max_examples=8)
@given(p=problems(), W=draws.arrays((2, 2)), W2=draws.arrays((2, 2)))
def test_row_19_one_head(kind, p, W, W2):
    head = p.field(kind)
    velocity = np.asarray(head(p.cloud, p.x))

    def through(W):
        return np.asarray(mf.MultiHead([head], W=[W])(p.cloud, p.x))

    agree(through(np.eye(2)), velocity, 1e-14)
    agree(through(W), velocity @ W.T, 1e-14)
    agree(through(W + W2), through(W) + through(W2), 1e-14)


@every_kind
@given(p=problems(), ties=st.booleans())
def test_row_20_causal_ends(kind, p, ties):
    """The last token sees all; the first one itself (averaging kinds); equal positions see each other."""
    assume(kind != "hardmax" or p.gap(p.X) > 1e-9)
    field = p.field(kind)
    plain = np.asarray(mf.velocity(field, p.cloud))
    positions = np.full(6, 0.5) if ties else None
    masked = np.asarray(mf.velocity(mf.Causal(field), p.cloud.with_positions(positions)))
    if ties:
        agree(masked, plain, 1e-13)
    else:
        agree(masked[-1], plain[-1], 1e-13)
        if kind in AVERAGING:
            agree(masked[0], p.V @ p.X[0], 1e-13)
