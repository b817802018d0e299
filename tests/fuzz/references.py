"""What NumPy says of the same call, where that is a few lines."""

import itertools

import numpy as np

import meanformer as mf


def _ordinary(*arrays):
    """Whether naive formulas neither over- nor underflow."""
    sizes = np.concatenate([np.abs(np.asarray(a, float)).ravel() for a in arrays])
    return sizes.max() < 1e100 and sizes[sizes > 0].min(initial=1.0) > 1e-100


def _moments(mu):
    x, w = np.asarray(mu.points, float), np.asarray(mu.weights, float)
    centred = x - w @ x
    return [(mu.mean, w @ x), (mu.covariance, (w[:, None] * centred).T @ centred)]


def _cloud(given, mu):
    return _moments(mu) if mu.points.ndim == 2 and _ordinary(mu.points) else []


def _gaussian(given, g):
    if g.mean.ndim > 1 or given.get("cov") is None:
        return []
    cov = np.atleast_2d(np.asarray(given["cov"], float))
    return [(np.asarray(g.covariance) / max(np.abs(cov).max(), 1e-300), cov / max(np.abs(cov).max(), 1e-300))]


def _spectrum(of):
    covariance = of.covariance if hasattr(of, "covariance") else np.atleast_2d(np.asarray(of, float))
    covariance = np.asarray(covariance, float)
    if not np.isfinite(covariance).all() or not np.abs(covariance).max() > 1e-250:
        return None
    values = np.maximum(np.linalg.eigvalsh(covariance / np.abs(covariance).max()), 0)
    return values / values.sum() if values.sum() > 0 else None


def _rank(formula):
    def compare(given, rank):
        p = _spectrum(given["of"])
        return [] if p is None else [(rank, formula(p))]

    return compare


def _cosine(given, found):
    mu = given["mu"]
    cloud = mu.cloud() if isinstance(mu, mf.Density) else mu
    x, w = np.asarray(cloud.points, float), np.asarray(cloud.weights, float)
    if not _ordinary(x):
        return []
    some = (np.linalg.norm(x, axis=1) > 0) & (w > 0)
    x, w = x[some] / np.linalg.norm(x[some], axis=1, keepdims=True), w[some]
    pairs = w[:, None] * w * (1 - np.eye(len(w)))
    return [(found, (pairs * (x @ x.T)).sum() / pairs.sum())] if len(w) > 1 else []


def _softmax(field, mu, x):
    """The attention matrix of softmax at `x`, and the velocities there; None for other fields and measures."""
    if type(field) is not mf.Softmax or not isinstance(mu, mf.PointCloud):
        return None
    if any(bias is not None for bias in (field.maps.query_bias, field.maps.key_bias, field.maps.value_bias)):
        return None
    y, w = np.asarray(mu.points, float), np.asarray(mu.weights, float)
    x = y if x is None else np.asarray(x, float)
    Q, K, V = (np.asarray(M, float) for M in (field.Q, field.K, field.V))
    if not _ordinary(x, y, Q, K, V):
        return None
    logits = (x @ Q.T) @ (y @ K.T).T / float(field.tau)
    P = w * np.exp(logits - logits.max(axis=1, keepdims=True))
    P = P / P.sum(axis=1, keepdims=True)
    return P, P @ y @ V.T


def _velocity(given, found):
    expected = None if given.get("accuracy") is not None else _softmax(given["field"], given["mu"], None)
    return [] if expected is None else [(found, expected[1])]


def _called(given, found):
    expected = _softmax(given["self"], given["mu"], given["x"])
    return [] if expected is None else [(found, expected[1])]


def _matrix(given, found):
    expected = _softmax(given["self"], given["mu"], given.get("x"))
    return [] if expected is None else [(found, expected[0])]


def _affine(given, found):
    """Of softmax, V (m + S A x), by the covariance."""
    field, g = given["self"], given["gaussian"]
    if type(field) is not mf.Softmax or not _ordinary(field.Q, field.K, field.V, g.mean, g.factor):
        return []
    Q, K, V = (np.asarray(M, float) for M in (field.Q, field.K, field.V))
    gain = V @ np.asarray(g.covariance, float) @ K.T @ Q / float(field.tau)
    return [(found[0], gain), (found[1], V @ np.asarray(g.mean, float))]


def _mapped(given, found):
    tokens = given["self"]
    expected = np.asarray(given["function"](np.asarray(tokens.points, float)), float)
    return [(found.points, expected)] if _ordinary(tokens.points) else []


def _pushed(given, found):
    g, M = given["self"], np.atleast_2d(np.asarray(given["M"], float))
    b = np.zeros(len(M)) if given.get("b") is None else np.asarray(given["b"], float)
    if not _ordinary(g.mean, g.factor, M, b):
        return []
    mean, S = np.asarray(g.mean, float), np.asarray(g.covariance, float)
    return [(found.mean, M @ mean + b), (found.covariance, M @ S @ M.T)]


def _wasserstein(given, found):
    """Over all permutations, for clouds of equal weights."""
    clouds = [given["mu"], given["nu"]]
    if not all(isinstance(mu, mf.PointCloud) and len(set(np.asarray(mu.weights).tolist())) == 1 for mu in clouds):
        return []
    (x, y), p = (np.asarray(mu.points, float) for mu in clouds), float(given.get("p", 2))
    if len(x) != len(y) or not _ordinary(x, y) or p > 10:
        return []
    gaps = np.linalg.norm(x[:, None] - y[None], axis=2) ** p
    rows = np.arange(len(x))
    return [(found, min(gaps[rows, list(order)].mean() for order in itertools.permutations(rows)) ** (1 / p))]


def _bures(given, found):
    g1, g2 = given["g1"], given["g2"]
    if g1.mean.ndim > 1 or g2.mean.ndim > 1 or not _ordinary(g1.mean, g1.factor, g2.mean, g2.factor):
        return []
    S1, S2 = (np.asarray(g.covariance, float) for g in (g1, g2))
    cross = np.sqrt(np.maximum(np.linalg.eigvals(S1 @ S2).real, 0)).sum()
    shift = np.asarray(g1.mean, float) - np.asarray(g2.mean, float)
    return [(float(found) ** 2, shift @ shift + np.trace(S1) + np.trace(S2) - 2 * cross)]


def _support(given, found):
    field, mu = given["field"], given["mu"]
    if type(field) is not mf.Softmax or not _ordinary(mu.points, field.V) or field.maps.value_bias is not None:
        return []
    w = np.asarray(mu.weights)
    radius = np.linalg.norm(np.asarray(mu.points, float), axis=1)[w > 0].max()
    span = float(np.asarray(given["t1"])) - float(np.asarray(given.get("t0", 0.0)))
    exponent = np.linalg.norm(np.asarray(field.V, float), 2) * span
    return [(found, radius * np.exp(exponent))] if exponent < 100 else []


def _energy(given, found):
    A, g = np.atleast_2d(np.asarray(given["A"], float)), given["gaussian"]
    S = np.asarray(g.covariance, float)
    return [(found, -np.trace(A.T @ S @ A @ S) / 4)] if _ordinary(A, g.factor) else []


REFERENCES = {
    "PointCloud": _cloud,
    "Gaussian": _gaussian,
    "effective_rank": _rank(lambda p: np.exp(-np.sum(p * np.log(np.where(p > 0, p, 1))))),
    "participation_ratio": _rank(lambda p: 1 / np.sum(p**2)),
    "stable_rank": _rank(lambda p: 1 / p.max()),
    "isoscore": _rank(lambda p: 1.0 if len(p) == 1 else (1 / np.sum(p**2) - 1) / (len(p) - 1)),
    "average_cosine": _cosine,
    "velocity": _velocity,
    "field.__call__": _called,
    "field.matrix": _matrix,
    "field.affine": _affine,
    "cloud.push": _mapped,
    "gaussian.push": _pushed,
    "wasserstein": _wasserstein,
    "bures_wasserstein": _bures,
    "support_bound": _support,
    "softmax_energy": _energy,
}


def agree(call, given, result):
    """Whether there is a reference for a call; with which its result must agree."""
    pairs = REFERENCES.get(call.name, lambda *_: [])(given, result) if result is not None else []
    for found, expected in pairs:
        single = any(getattr(part, "dtype", None) in ("float32", "float16", "bfloat16") for part in (found,))
        rtol = 2e-2 if getattr(found, "dtype", "") in ("float16", "bfloat16") else 1e-4 if single else 1e-9
        np.testing.assert_allclose(np.asarray(found, float), expected, rtol=rtol, atol=rtol)
    return int(bool(pairs))
