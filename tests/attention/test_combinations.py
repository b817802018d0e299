"""Fields in combination: heads, masks, biases, norms, schedules, sums, batches, dtypes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from oracles import dense, golden
from oracles.dense import KINDS, SINKHORN, UNNORMALISED, error

every_kind = pytest.mark.parametrize("kind", KINDS)
# Sinkhorn compiles slowly; where a test needs a shape of its own, one kernel stands for both.
most_kinds = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sinkhorn_l2"])


def accuracy(kind):
    return 1e-11 if kind in SINKHORN else 1e-13


class Setting:
    """6 weighted tokens in the plane (one of weight zero), other query points, and one head."""

    def __init__(self, seed=0, n=6, d=2, k=2):
        rng = np.random.default_rng(seed)
        w = rng.uniform(0.2, 1, n)
        w[2] = 0
        self.X, self.w, self.x = rng.normal(size=(n, d)), w / w.sum(), rng.normal(size=(n, d))
        self.Q, self.K, self.V = rng.normal(size=(k, d)), rng.normal(size=(k, d)), rng.normal(size=(d, d))
        self.s = rng.permutation(n) // 2 * 2 / n  # ties, not in the order of the tokens
        self.rng, self.tau, self.b = rng, 1.3, 0.4

    def field(self, kind, **options):
        return golden.make(kind, self.Q, self.K, self.V, self.tau, self.b, **options)

    def dense(self, kind, x, **options):
        return dense.velocity(kind, x, self.X, self.w, self.Q, self.K, self.V, self.tau, self.b, **options)

    @property
    def cloud(self):
        return mf.PointCloud(self.X, self.w)

    @property
    def masked_cloud(self):
        return mf.PointCloud(self.X, self.w, self.s)


# Weights and matrices that are zero, singular or narrow


@every_kind
def test_zero_weight_acts_on_nobody(kind):
    """A token of weight zero is moved as a query is, wherever it is; and nobody feels where it is."""
    here = Setting()
    there = Setting()
    there.X = np.where(np.arange(6)[:, None] == 2, 50.0, here.X)
    field = here.field(kind)
    assert error(field(there.cloud, here.x), field(here.cloud, here.x)) <= 1e-14
    assert error(mf.velocity(field, here.cloud), here.dense(kind, here.X)) <= accuracy(kind)


@most_kinds
def test_zero_weight_has_finite_derivatives(kind):
    """The derivative in the points is finite, and that of the others' velocities in the idle token vanishes."""
    z = Setting()
    x = jnp.asarray(z.x)

    def loss(points):
        return jnp.sum(z.field(kind)(mf.PointCloud(points, z.w), x) ** 2)

    gradient = np.asarray(jax.grad(loss)(jnp.asarray(z.X)))
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 1e-3
    assert np.abs(gradient[2]).max() < 1e-13


@every_kind
@pytest.mark.parametrize("singular", ["Q", "K", "both"])
def test_rank_deficient(kind, singular):
    z = Setting()
    rank_one = np.outer([1.0, -2.0], [0.5, 0.3])
    z.Q, z.K = (rank_one if singular in (name, "both") else M for name, M in (("Q", z.Q), ("K", z.K)))
    if kind == "hardmax":  # logits that are equal in exact arithmetic would be told apart by rounding
        assert np.diff(np.sort((z.x @ z.Q.T) @ (z.X @ z.K.T).T, axis=1), axis=1).min() > 1e-6
    assert error(z.field(kind)(z.cloud, z.x), z.dense(kind, z.x)) <= accuracy(kind)


@every_kind
def test_biases_are_a_constant_coordinate(kind):
    """$Qx+b_q$ is $(Q\\ b_q)$ acting on the token $(x,1)$; so for keys and values."""
    z = Setting(1)
    bq, bk, bv = z.rng.normal(size=(3, 2))
    got = z.field(kind, query_bias=bq, key_bias=bk, value_bias=bv)(z.cloud, z.x)
    Q, K, V = (np.column_stack([M, b]) for M, b in ((z.Q, bq), (z.K, bk), (z.V, bv)))
    X, x = (np.column_stack([a, np.ones(6)]) for a in (z.X, z.x))
    want = dense.velocity(kind, x, X, z.w, Q, K, V, z.tau, z.b)
    assert error(got, want) <= accuracy(kind)
    assert error(want, z.dense(kind, z.x)) > 1e-2  # the biases matter


# Heads


def test_heads_of_a_network():
    """`from_network` is what a network computes: project, cut, attend, concatenate, multiply by the output matrix."""
    rng = np.random.default_rng(0)
    n, d, heads, k, v = 7, 4, 3, 2, 3
    X, w = rng.normal(size=(n, d)), np.full(n, 1 / n)
    Q, K, V, O = (rng.normal(size=shape) for shape in ((heads * k, d), (heads * k, d), (heads * v, d), (d, heads * v)))
    bq, bk, bv, bo = (rng.normal(size=size) for size in (heads * k, heads * k, heads * v, d))
    queries, keys, values = X @ Q.T + bq, X @ K.T + bk, X @ V.T + bv
    mixed = []
    for h in range(heads):
        scores = queries[:, h * k : (h + 1) * k] @ keys[:, h * k : (h + 1) * k].T / np.sqrt(k)
        p = np.exp(scores)
        mixed.append(p / p.sum(axis=1, keepdims=True) @ values[:, h * v : (h + 1) * v])
    want = np.concatenate(mixed, axis=1) @ O.T + bo
    biases = {"query_bias": bq, "key_bias": bk, "value_bias": bv, "output_bias": bo}
    field = mf.MultiHead.from_network(Q, K, V, O, heads=heads, **biases)
    assert error(mf.velocity(field, mf.PointCloud(X, w)), want) <= 1e-13
    # Other kinds and temperatures, without biases, against explicit slices.
    made = mf.MultiHead.from_network(Q, K, V, O, heads=heads, kind=mf.L2, tau=0.7)
    want = sum(
        dense.velocity("l2", X, X, w, Q[i * k : i * k + k], K[i * k : i * k + k], V[i * v : i * v + v], 0.7)
        @ O[:, i * v : i * v + v].T
        for i in range(heads)
    )
    assert error(mf.velocity(made, mf.PointCloud(X, w)), want) <= 1e-13


@most_kinds
def test_equal_heads_are_mapped(kind):
    """Heads of one kind and shape are one mapped program; the result is the sum of the heads one by one."""
    zs = [Setting(seed) for seed in range(3)]
    Ws = [z.rng.normal(size=(2, 2)) for z in zs]
    field = mf.MultiHead([z.field(kind) for z in zs], W=Ws)
    mu, x = zs[0].masked_cloud, zs[0].x
    want = sum(
        dense.velocity(kind, x, zs[0].X, zs[0].w, z.Q, z.K, z.V, z.tau, z.b) @ W.T for z, W in zip(zs, Ws, strict=True)
    )
    assert error(field(mu, x), want) <= accuracy(kind)


def test_mixed_heads():
    """Heads of different kinds and key dimensions, some of them equal, with and without output matrices."""
    zs = [Setting(0), Setting(1), Setting(2, k=1), Setting(3)]
    kinds = ("softmax", "softmax", "l2", "sigmoid")
    mu, x = zs[0].cloud, zs[0].x

    def one(z, kind):
        return dense.velocity(kind, x, zs[0].X, zs[0].w, z.Q, z.K, z.V, z.tau, z.b)

    heads = [z.field(kind) for z, kind in zip(zs, kinds, strict=True)]
    Ws = [z.rng.normal(size=(2, 2)) for z in zs]
    assert error(mf.MultiHead(heads)(mu, x), sum(map(one, zs, kinds))) <= 1e-13
    want = sum(one(z, kind) @ W.T for z, kind, W in zip(zs, kinds, Ws, strict=True))
    assert error(mf.MultiHead(heads, W=Ws)(mu, x), want) <= 1e-13


# Masks


@most_kinds
def test_causal_off_the_tokens(kind):
    """Queries at positions of their own, some before any token; ties see each other."""
    z = Setting(4)
    z.s = np.array([0.25, 0.5, 0.5, 0.25, 0.75, 0.5])
    s = np.array([0.25, 0.0, 0.5, 0.3, 1.0, 0.74])
    got = mf.Causal(z.field(kind))(z.masked_cloud, z.x, s=s)
    assert error(got, z.dense(kind, z.x, s=s, r=z.s)) <= accuracy(kind)
    assert not np.asarray(got[1]).any()  # sees nothing
    assert np.asarray(got[0]).any()


@pytest.mark.parametrize("kind", UNNORMALISED)
def test_prefix_option(kind):
    """The masked integral, or divided by the mass seen."""
    z = Setting(4)
    plain = mf.velocity(mf.Causal(z.field(kind)), z.masked_cloud)
    divided = mf.velocity(mf.Causal(z.field(kind), prefix=True), z.masked_cloud)
    assert error(plain, z.dense(kind, z.X, s=z.s, r=z.s)) <= 1e-13
    assert error(divided, z.dense(kind, z.X, s=z.s, r=z.s, prefix=True)) <= 1e-13
    mass = np.array([z.w[z.s <= s].sum() for s in z.s])
    assert error(np.asarray(plain) / np.where(mass > 0, mass, 1)[:, None], divided) <= 1e-13


def test_prefix_option_does_not_touch_averages():
    z = Setting(4)
    one, other = (mf.velocity(mf.Causal(z.field("softmax"), prefix=p), z.masked_cloud) for p in (False, True))
    assert np.array_equal(one, other)


def test_causal_sinkhorn_is_sinkhorn_on_what_is_seen():
    z = Setting(5)
    field = z.field("sinkhorn_dot")
    got = np.asarray(mf.velocity(mf.Causal(field), z.masked_cloud))
    for i in range(6):
        seen = np.where(z.s <= z.s[i], z.w, 0)
        alone = field(mf.PointCloud(z.X, seen / seen.sum()), z.X)[i]
        assert error(got[i], alone, floor=1.0) <= 1e-11


def test_causal_sinkhorn_is_refused_when_large():
    field = mf.Sinkhorn(np.eye(2), np.eye(2), np.eye(2))
    bold = mf.Sinkhorn(np.eye(2), np.eye(2), np.eye(2), allow_large_causal=True)
    tokens = mf.PointCloud(np.zeros((513, 2))).with_positions()
    with pytest.raises(ValueError, match=r"(?s)O\(n\^3\).*513 tokens.*512.*allow_large_causal"):
        mf.velocity(mf.Causal(field), tokens)
    # With the flag, and at 512 tokens, it is accepted (traced here, not computed).
    assert jax.eval_shape(lambda mu: mf.velocity(mf.Causal(bold), mu), tokens).shape == (513, 2)
    fewer = mf.PointCloud(np.zeros((512, 2))).with_positions()
    assert jax.eval_shape(lambda mu: mf.velocity(mf.Causal(field), mu), fewer).shape == (512, 2)


def test_masked_heads_and_sums():
    """A mask reaches the heads and terms inside it, and only those."""
    z = Setting(6)
    soft, hard = z.field("softmax"), z.field("sigmoid")
    masked = {"s": z.s, "r": z.s}
    got = mf.velocity(mf.Causal(mf.MultiHead([soft, hard])) + 0.5 * soft, z.masked_cloud)
    want = z.dense("softmax", z.X, **masked) + z.dense("sigmoid", z.X, **masked) + z.dense("softmax", z.X) / 2
    assert error(got, want) <= 1e-13


# Attention matrices


@every_kind
def test_matrix(kind):
    """Shape, entries, and that it reproduces the velocity, on the tokens and off them."""
    z = Setting(7)
    bq, bk, bv = z.rng.normal(size=(3, 2))  # all of them, as above: the field is compiled already
    field = z.field(kind, query_bias=bq, key_bias=bk, value_bias=bv)
    q, own, keys = (dense.rows(M, a) + b for M, a, b in ((z.Q, z.x, bq), (z.Q, z.X, bq), (z.K, z.X, bk)))
    P = field.matrix(z.cloud, z.x)
    assert P.shape == (6, 6)
    assert error(P, dense.matrix(kind, q, keys, z.w, z.tau, z.b, own)) <= accuracy(kind)
    assert not np.asarray(P[:, 2]).any()  # the token of weight zero
    assert error(P @ jnp.asarray(z.X @ z.V.T + bv), field(z.cloud, z.x)) <= accuracy(kind)
    on = field.matrix(z.cloud)
    assert error(on @ jnp.asarray(z.X @ z.V.T + bv), mf.velocity(field, z.cloud)) <= accuracy(kind)


@most_kinds
def test_masked_matrix(kind):
    z = Setting(7)
    P = mf.Causal(z.field(kind)).matrix(z.masked_cloud)
    hidden = z.s[None, :] > z.s[:, None]
    assert not np.asarray(P)[hidden].any()
    assert error(P @ jnp.asarray(z.X @ z.V.T), z.dense(kind, z.X, s=z.s, r=z.s)) <= accuracy(kind)


def test_matrices_of_heads():
    z = Setting(8)
    kinds = ("softmax", "l2", "linear")
    Ws = list(z.rng.normal(size=(3, 2, 2)))
    field = mf.MultiHead([z.field(kind) for kind in kinds], W=Ws)
    P = np.asarray(field.matrix(z.cloud, z.x[:4]))
    assert P.shape == (3, 4, 6)
    assert error(sum(p @ z.X @ z.V.T @ W.T for p, W in zip(P, Ws, strict=True)), field(z.cloud, z.x[:4])) <= 1e-13


# Batches, transformations, dtypes


@most_kinds
@pytest.mark.parametrize("masked", [False, True])
def test_batch_of_clouds(kind, masked):
    """Clouds of different lengths, padded, mapped and compiled, equal the clouds one by one."""
    z = Setting(9)
    lengths = (6, 4)
    clouds = [mf.PointCloud(z.X[:n], z.w[:n] / z.w[:n].sum(), z.s[:n]) for n in lengths]
    field = mf.Causal(z.field(kind)) if masked else z.field(kind)
    batch = mf.stack_clouds(clouds)
    got = jax.jit(jax.vmap(lambda mu: mf.velocity(field, mu)))(batch)
    assert got.shape == (2, 6, 2) and np.isfinite(np.asarray(got)).all()
    for velocity, mu, n in zip(got, clouds, lengths, strict=True):
        where = {"s": np.asarray(mu.positions), "r": np.asarray(mu.positions)} if masked else {}
        arguments = (np.asarray(mu.points), np.asarray(mu.weights), z.Q, z.K, z.V, z.tau, z.b)
        assert error(velocity[:n], dense.velocity(kind, arguments[0], *arguments, **where)) <= accuracy(kind)


@most_kinds
def test_map_over_matrices(kind):
    """Fields are made inside a mapped function too."""
    z = Setting(10)
    scales = jnp.asarray([0.5, 1.0])
    got = jax.vmap(lambda c: golden.make(kind, c * z.Q, jnp.asarray(z.K), jnp.asarray(z.V))(z.cloud, z.x))(scales)
    for c, velocity in zip(scales, got, strict=True):
        want = dense.velocity(kind, z.x, z.X, z.w, float(c) * z.Q, z.K, z.V)
        assert error(velocity, want) <= accuracy(kind)


@most_kinds
def test_dtypes(kind):
    """float32 stays float32, mixed inputs take the widest, integers become float64."""
    z = Setting(11)
    single = np.float32
    tol = None  # Sinkhorn: the default of the dtype
    narrow = golden.make(kind, *(M.astype(single) for M in (z.Q, z.K, z.V)), single(z.tau), single(z.b), tol=tol)
    w = z.w.astype(single)
    cloud = mf.PointCloud(z.X.astype(single), w)
    got = mf.velocity(narrow, cloud)
    assert got.dtype == jnp.float32
    assert error(got, z.dense(kind, z.X)) <= 2e-4
    if kind not in SINKHORN:
        whole = golden.make(kind, [[1, 0], [0, 1]], [[1, 0], [0, 1]], [[1, 0], [0, 1]])
        assert whole.Q.dtype == jnp.float64
        wide = (
            lambda: narrow(cloud, z.x),
            lambda: narrow(z.cloud, z.x.astype(single)),
            lambda: z.field(kind)(cloud, z.x.astype(single)),
            lambda: mf.velocity(whole, mf.PointCloud([[1, 2], [3, 4]])),
        )
        # Traced here, not computed.
        assert [jax.eval_shape(call).dtype for call in wide] == [jnp.float64] * 4
        assert jax.eval_shape(lambda: narrow.matrix(cloud)).dtype == jnp.float32


# Sums, multiples, times


def test_sums_and_multiples():
    z = Setting(12)
    a, b = z.field("softmax"), z.field("l2")
    A, B = z.dense("softmax", z.x), z.dense("l2", z.x)
    M, shift = z.rng.normal(size=(2, 2)), z.rng.normal(size=2)
    cases = [
        (a + b, A + B),
        (a - b, A - B),
        (-a, -A),
        (2.5 * a, 2.5 * A),
        (a * 2.5, 2.5 * A),
        (a / 4, A / 4),
        (a + 2 * b + mf.Affine(M, shift), A + 2 * B + z.x @ M.T + shift),
        (mf.MultiHead([a + b], W=[M]), (A + B) @ M.T),
    ]
    for field, want in cases:
        assert error(field(z.cloud, z.x), want) <= 1e-13
    assert (a + b).matrix(z.cloud).shape == (2, 6, 6)


def test_scheduled():
    z = Setting(13)
    field = mf.Scheduled(lambda t: mf.Softmax(z.Q + t * z.K, z.K, jnp.cos(t) * z.V))
    for t in (0.0, 0.7, 2.0):
        want = dense.velocity("softmax", z.x, z.X, z.w, z.Q + t * z.K, z.K, np.cos(t) * z.V)
        assert error(field(z.cloud, z.x, t), want) <= 1e-13
    assert field.matrix(z.cloud, t=0.7).shape == (6, 6)


def test_piecewise():
    """A break belongs to the piece that it starts."""
    z = Setting(14)
    kinds = ("softmax", "l2", "sigmoid")
    field = mf.Piecewise([z.field(kind) for kind in kinds], breaks=[0.5, 1.0])
    for t, kind in ((-1.0, 0), (0.0, 0), (0.499, 0), (0.5, 1), (0.9, 1), (1.0, 2), (5.0, 2)):
        assert error(field(z.cloud, z.x, t), z.dense(kinds[kind], z.x)) <= 1e-13
    now = z.field("softmax")
    for around in (lambda f: f, lambda f: f + now, mf.PreNorm):
        np.testing.assert_array_equal(around(field).matrix(z.cloud, t=0.2), around(now).matrix(z.cloud))
    np.testing.assert_array_equal(mf.Causal(field).matrix(z.masked_cloud, t=0.2), mf.Causal(now).matrix(z.masked_cloud))


def test_push_attention():
    """The layer without a residual: new points, old weights and positions."""
    z = Setting(15)
    pushed = mf.push_attention(mf.Causal(z.field("softmax")), z.masked_cloud)
    assert error(pushed.points, z.dense("softmax", z.X, s=z.s, r=z.s)) <= 1e-13
    assert np.array_equal(pushed.weights, z.w) and np.array_equal(pushed.positions, z.s)


# The block of the original architecture


def layer_norm(x, scale=1.0, bias=0.0, eps=1e-5):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps) * scale + bias


def rms_norm(x, scale=1.0, bias=0.0, eps=1e-5):
    return x / np.sqrt((x**2).mean(1, keepdims=True) + eps) * scale + bias


@pytest.mark.parametrize(("norm", "reference"), [(mf.LayerNorm, layer_norm), (mf.RMSNorm, rms_norm)])
def test_norms(norm, reference):
    rng = np.random.default_rng(0)
    x, scale, bias = rng.normal(size=(5, 4)), rng.normal(size=4), rng.normal(size=4)
    assert error(norm()(jnp.asarray(x)), reference(x)) <= 1e-14
    assert error(norm(scale, bias, 1e-2)(jnp.asarray(x)), reference(x, scale, bias, 1e-2)) <= 1e-14


@pytest.mark.parametrize(("norm", "reference"), [(mf.LayerNorm, layer_norm), (mf.RMSNorm, rms_norm)])
def test_pre_and_post_norm(norm, reference):
    z = Setting(16)
    scale, bias = z.rng.normal(size=2), z.rng.normal(size=2)
    N = norm(scale, bias, 0.1)

    def normed(x):
        return reference(x, scale, bias, 0.1)

    attention = z.field("softmax")
    arguments = (z.w, z.Q, z.K, z.V, z.tau)
    before = dense.velocity("softmax", normed(z.x), normed(z.X), *arguments).astype(float)
    assert error(mf.PreNorm(attention, N)(z.cloud, z.x), before) <= 1e-13
    after = normed((z.x + z.dense("softmax", z.x)).astype(float)) - z.x
    assert error(mf.PostNorm(attention, N)(z.cloud, z.x), after) <= 1e-13
    # The attention matrix inside is that of the tokens it sees.
    inside = mf.PreNorm(attention, N).matrix(z.cloud)
    assert error(inside, attention.matrix(mf.PointCloud(normed(z.X), z.w))) <= 1e-13


def test_perceptron():
    rng = np.random.default_rng(1)
    x, W1, W2, b1, b2 = (rng.normal(size=shape) for shape in ((5, 3), (7, 3), (3, 7), 7, 3))
    tokens = mf.PointCloud(x)
    got = mf.velocity(mf.Perceptron(W1, W2, b1, b2), tokens)
    assert error(got, np.maximum(x @ W1.T + b1, 0) @ W2.T + b2) <= 1e-14
    got = mf.velocity(mf.Perceptron(W1, W2, activation=jnp.tanh), tokens)
    assert error(got, np.tanh(x @ W1.T) @ W2.T) <= 1e-14


@pytest.mark.parametrize("order", ["post", "pre"])
def test_encoder_block(order):
    """Heads with biases and a perceptron, each with residual and norm, twice: equal to the block in plain NumPy."""
    rng = np.random.default_rng(2)
    n, d, heads, hidden = 6, 4, 2, 8
    x = rng.normal(size=(n, d))
    Q, K, V, O = rng.normal(size=(4, d, d)) / 2
    bq, bk, bv, bo, b2, scale, bias = rng.normal(size=(7, d))
    W1, W2, b1 = rng.normal(size=(hidden, d)), rng.normal(size=(d, hidden)), rng.normal(size=hidden)

    def normed(x):
        return layer_norm(x, scale, bias)

    def attend(x):
        q, k, v = x @ Q.T + bq, x @ K.T + bk, x @ V.T + bv
        parts = []
        for h in range(heads):
            cut = slice(h * d // heads, (h + 1) * d // heads)
            p = np.exp(q[:, cut] @ k[:, cut].T / np.sqrt(d // heads))
            parts.append(p / p.sum(1, keepdims=True) @ v[:, cut])
        return np.concatenate(parts, axis=1) @ O.T + bo

    def perceive(x):
        return np.maximum(x @ W1.T + b1, 0) @ W2.T + b2

    want = x
    for _ in range(2):
        for part in (attend, perceive):
            want = normed(want + part(want)) if order == "post" else want + part(normed(want))
    biases = {"query_bias": bq, "key_bias": bk, "value_bias": bv, "output_bias": bo}
    attention = mf.MultiHead.from_network(Q, K, V, O, heads=heads, **biases)
    wrap = mf.PostNorm if order == "post" else mf.PreNorm
    block = [wrap(part, mf.LayerNorm(scale, bias)) for part in (attention, mf.Perceptron(W1, W2, b1, b2))]
    run = mf.layers(block * 2, mf.PointCloud(x), step=1.0)
    assert error(run.final.points, want) <= 1e-12


def test_a_field_is_a_pytree():
    """Weights are leaves: a field is differentiated and updated like any equinox module."""
    z = Setting(17)

    def loss(field):
        return jnp.sum(field(z.cloud, z.x) ** 2)

    gradient = eqx.filter_grad(loss)(z.field("softmax"))
    h, direction = 1e-5, np.ones((2, 2))
    bent = [golden.make("softmax", z.Q, z.K, z.V + s * h * direction, z.tau) for s in (1, -1)]
    assert float(jnp.sum(gradient.maps.V)) == pytest.approx(float(loss(bent[0]) - loss(bent[1])) / (2 * h), rel=1e-8)


def test_dtypes_of_schedules_and_norms():
    """Nothing inside a combination widens the tokens' dtype: neither the time nor the eps of a norm."""
    M = np.eye(2, dtype=np.float32)
    cloud = mf.PointCloud(np.ones((3, 2), np.float32))
    for field in (
        mf.Scheduled(lambda t: mf.Softmax(M, M, M)),
        mf.PreNorm(mf.Softmax(M, M, M)),
        mf.PostNorm(mf.Softmax(M, M, M), mf.RMSNorm()),
        0.5 * mf.Causal(mf.Softmax(M, M, M)) + mf.Affine(M),
    ):
        assert jax.eval_shape(lambda f=field: mf.velocity(f, cloud.with_positions())).dtype == jnp.float32


class Plain(mf.AbstractAttention):
    """Softmax, written with an array of all pairs, as a user would."""

    maps: mf.Projections
    averages = True
    normalised = True

    def mix(self, mu, x, values, view):
        q, k = self.features(x, mu.points)
        logits = q @ k.T + jnp.log(mu.weights)[None]
        return jax.nn.softmax(logits, axis=1, where=view.seen(mu, x)) @ values


@pytest.mark.parametrize(
    "wrapped", [lambda field: field, mf.Causal, lambda field: mf.MultiHead([field, mf.Causal(field)])]
)
def test_a_kind_of_a_user_sees_what_ours_sees(wrapped):
    """With and without a mask, and a part of the tokens under one."""
    rng = np.random.default_rng(0)
    Q, K, V = (jnp.asarray(M) for M in rng.normal(size=(3, 2, 2)))
    tokens = mf.PointCloud(rng.normal(size=(5, 2)), rng.dirichlet(np.ones(5))).with_positions()
    ours, theirs = (
        mf.velocity(wrapped(kind), tokens) for kind in (mf.Softmax(Q, K, V), Plain(mf.Projections(Q, K, V)))
    )
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-14)


def test_a_field_on_a_density_looks_at_its_cells():
    rho = mf.Density(np.linspace(0.5, 1.5, 12), 0.0, 1.0)
    field = mf.Softmax(0.8, 1.1, 0.9)
    cells = rho.cloud()
    np.testing.assert_array_equal(field.matrix(rho), field.matrix(cells))
    np.testing.assert_array_equal(mf.push_attention(field, rho).points, mf.velocity(field, cells))


def test_a_field_is_not_asked_at_the_tokens_of_a_gaussian():
    g, field = mf.Gaussian(mean=[0.2], cov=[[0.3]]), mf.Softmax(0.8, 1.1, 0.9)
    for call in (lambda: field(g, [[0.1]]), lambda: field.matrix(g), lambda: mf.push_attention(field, g)):
        with pytest.raises(mf.InputError, match="a Gaussian has no tokens"):
            call()
