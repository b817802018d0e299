r"""Attention velocities, dense and in extended precision, straight from the definitions.

Kinds are named as in the golden files: `softmax`, `l2`, `sinkhorn_dot`, `sinkhorn_l2`, `sigmoid`, `linear`, `usa`,
`hardmax`. Nothing is blocked, nothing is clever: an n x n array per call, a Python loop over masked queries.
"""

import numpy as np

KINDS = ("softmax", "l2", "sinkhorn_dot", "sinkhorn_l2", "sigmoid", "linear", "usa", "hardmax")
SINKHORN = ("sinkhorn_dot", "sinkhorn_l2")
AVERAGING = ("softmax", "l2", "sinkhorn_dot", "sinkhorn_l2", "hardmax")
UNNORMALISED = ("sigmoid", "linear", "usa")


def wide(a):
    return np.asarray(a, np.longdouble)


def rows(M, x):
    """$Mx$ for each row of `x`."""
    return wide(x) @ wide(M).T


def logits(kind, q, k, tau=1.0):
    """$c_{ij}$ from queries $q_i$ and keys $k_j$; `tau` divides the whole exponent (hardmax has none)."""
    if kind in ("l2", "sinkhorn_l2"):
        return -((q[:, None] - k[None]) ** 2).sum(-1) / wide(tau)
    return q @ k.T / wide(1.0 if kind == "hardmax" else tau)


def normalised(log_kernel):
    """Rows $e^{l}$ divided by their sum."""
    p = np.exp(log_kernel - log_kernel.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def lse(a, axis):
    top = a.max(axis, keepdims=True)
    return (top + np.log(np.exp(a - top).sum(axis, keepdims=True))).squeeze(axis)


def potentials(C, w):
    r"""$(f,g)$ with $e^{f_i+g_j+c_{ij}}$ bistochastic against positive weights `w`, in the gauge $\sum_jw_jg_j=0$.

    Newton on the full dual $\sum w(f+g)-\sum w_iw_je^{f_i+g_j+c_{ij}}$, halving steps that do not climb, down a ladder
    of temperatures. Stops when the correction itself is small: small marginal errors alone do not bound potentials.
    """
    C, w = wide(C), wide(w)
    n, log_w, root = len(w), np.log(w), np.sqrt(w)
    f = g = np.zeros_like(w)
    hottest = min(1.0, 8.0 / max(1e-30, float(np.ptp(C))))
    ladder = np.append(hottest * 2.0 ** np.arange(np.ceil(-np.log2(hottest))), 1.0)
    gauge = np.concatenate([root, -root]).astype(float) / np.sqrt(2)
    for previous, heat in zip(np.append(ladder[0], ladder[:-1]), ladder, strict=True):
        f, g = f * heat / previous, g * heat / previous
        for _ in range(20):
            f = -lse(heat * C + g + log_w, 1)
            g = -lse(heat * C.T + f + log_w, 1)

        def dual(f, g, heat=heat):
            with np.errstate(over="ignore"):
                return (w * (f + g)).sum() - (w * np.exp(f[:, None] + g + heat * C + log_w).sum(1)).sum()

        for _ in range(200):
            k = np.exp(f[:, None] + g + heat * C)
            r, a = k @ w, w @ k
            # The Hessian scaled by sqrt(w) on both sides, with its kernel (1, -1) filled.
            M = root[:, None] * k * root
            H = np.block([[np.diag(r), M], [M.T, np.diag(a)]]).astype(float) + np.outer(gauge, gauge)
            step = np.linalg.solve(H, np.concatenate([root * (1 - r), root * (1 - a)]).astype(float))
            df, dg = wide(step[:n]) / root, wide(step[n:]) / root
            size = max(np.abs(df).max(), np.abs(dg).max())
            length = 1.0
            while length > 1e-9 and not dual(f + length * df, g + length * dg) >= dual(f, g) - 1e-17:
                length /= 2
            f, g = f + length * df, g + length * dg
            if size < (1e-13 if heat == 1 else 1e-3):
                break
    assert size < 1e-11, f"the reference itself did not converge: {size}"
    shift = (w * g).sum()
    f = -lse(C + (g - shift) + log_w, 1)
    return f, g - shift


def matrix(kind, q, Xk, w, tau=1.0, b=0.0, own_queries=None):
    """The attention matrix between queries `q` and keys `Xk` (Sinkhorn: `own_queries` are those of the tokens)."""
    w = wide(w)
    seen = w > 0
    C = logits(kind, q, Xk, tau)[:, seen]
    v = w[seen]
    P = np.zeros((len(q), len(w)), np.longdouble)
    if kind in ("softmax", "l2"):
        P[:, seen] = normalised(C + np.log(v))
    elif kind in SINKHORN:
        _, g = potentials(logits(kind, own_queries, Xk, tau)[np.ix_(seen, seen)], v)
        P[:, seen] = normalised(C + g + np.log(v))
    elif kind == "sigmoid":
        z = C + wide(b)
        P[:, seen] = v * np.where(z >= 0, 1 / (1 + np.exp(-np.abs(z))), np.exp(-np.abs(z)) / (1 + np.exp(-np.abs(z))))
    elif kind == "linear":
        P[:, seen] = v * C
    elif kind == "usa":
        P[:, seen] = v * np.exp(C)
    elif kind == "hardmax":
        top = v * (C.max(1, keepdims=True) == C)
        P[:, seen] = top / top.sum(1, keepdims=True)
    else:
        raise KeyError(kind)
    return P


def velocity(kind, x, X, w, Q, K, V, tau=1.0, b=0.0, *, s=None, r=None, prefix=False):
    r"""$\Gamma_\mu(x)$; with positions `s` of the queries and `r` of the tokens, masked by $r_j\le s_i$."""
    q, own, keys, values, w = rows(Q, x), rows(Q, X), rows(K, X), rows(V, X), wide(w)
    if s is None:
        return matrix(kind, q, keys, w, tau, b, own) @ values
    out = []
    for i in range(len(q)):
        seen = np.asarray(r) <= s[i]
        mass = w[seen].sum()
        if mass == 0:
            out.append(np.zeros(values.shape[1], np.longdouble))
            continue
        # Prefix rule: the visible measure is renormalised. A masked integral is that, times its mass.
        P = matrix(kind, q[i : i + 1], keys[seen], w[seen] / mass, tau, b, own[seen])
        factor = mass if kind in UNNORMALISED and not prefix else 1
        out.append(factor * (P @ values[seen])[0])
    return np.stack(out)


def error(got, want, floor=0.0):
    """Largest error, relative to the largest entry of `want` (to `floor`, if that is larger)."""
    got, want = np.asarray(got, np.longdouble), np.asarray(want, np.longdouble)
    assert got.shape == want.shape, f"shapes {got.shape} and {want.shape}"
    assert np.isfinite(got).all() and np.isfinite(want).all()
    scale = max(float(np.abs(want).max()), floor)
    return float(np.abs(got - want).max()) / (scale or 1.0)
