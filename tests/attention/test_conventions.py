"""Conventions that no identity sees: by hand."""

import numpy as np

import meanformer as mf


def test_sigmoid_per_token_is_the_sum_of_networks():
    """A sum over tokens, with - log n in the bias."""
    rng = np.random.default_rng(5)
    Q, K, V, points = (rng.normal(size=shape) for shape in ((3, 2), (3, 2), (2, 2), (7, 2)))
    bias, tau, n = 0.3, 1.7, 6
    # The last token has no weight: it is not one of the n.
    weights = np.append(np.full(n, 1 / n), 0.0)
    logits = (points @ Q.T) @ (points[:n] @ K.T).T / tau + bias - np.log(n)
    want = 1 / (1 + np.exp(-logits)) @ (points[:n] @ V.T)
    field = mf.Sigmoid(Q, K, V, tau, bias, per_token=True)
    np.testing.assert_allclose(mf.velocity(field, mf.PointCloud(points, weights)), want, rtol=1e-13)
    # Without it the sum is an average, and the bias is the bias.
    plain = 1 / (1 + np.exp(-(logits + np.log(n)))) @ (points[:n] @ V.T) / n
    np.testing.assert_allclose(
        mf.velocity(mf.Sigmoid(Q, K, V, tau, bias), mf.PointCloud(points, weights)), plain, rtol=1e-13
    )


def test_hardmax_shares_ties_by_weight():
    I = np.eye(2)
    tokens = mf.PointCloud([[1.0, 1.0], [1.0, -1.0], [0.0, 0.0]], [0.2, 0.3, 0.5])
    got = mf.Hardmax(I, I, I)(tokens, [[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(got, [[1.0, (0.2 - 0.3) / 0.5], [1.0, 1.0]], rtol=1e-15)
