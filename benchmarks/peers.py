r"""What a careful user would run instead of meanformer to learn the fate of one Gaussian (MATH e.2, e.5).

Two peers, in NumPy and scipy only: LSODA on the factor in log time, read by log-log slopes (a good numerical analyst),
and projected Euler on the covariance, read by an absolute threshold (the habit of published scripts).
"""

import warnings
from typing import NamedTuple

import numpy as np
from scipy.integrate import DOP853, ode
from scipy.linalg.lapack import dgesdd, dposv

ALIVE, DEAD = 0.05, -0.3  # MATH e.5: |rho| below the first, rho below the second
STRICTLY_DEAD, FADE = -0.8, 0.5  # strict rule: dead below, and an alive |rho| falls by this factor per decade
CERTIFIED = 1e8  # strict rule: no alive direction starts to die before gamma_0 t = this
STEADY = 0.02  # how far an alive slope may move over the last decade
PER_DECADE = 4  # looks at the slopes per decade of t
GROWN = 1e9  # tr Sigma / tr Sigma_0 of a growing run
ROUNDOFF = 1e-14  # singular values of L below this, relative to the largest, are noise


class Fate(NamedTuple):
    """`kind` is converged, blew_up, diverged or undecided; `rank` the limit's, `time` the one reached (or $t^*$)."""

    kind: str
    rank: int | None
    time: float
    slopes: np.ndarray
    steps: int


def velocity(kind, L, Q, K, V, tau):
    r"""$\dot L=GL$ on the factor of $\Sigma=LL^\top$ (MATH e.2).

    With $P=KL/\sqrt\tau$, $R=QL/\sqrt\tau$ and $M=P^\top R$ all three kinds are $VLT$: $T=M$ (softmax),
    $T=2P^\top(I+2PP^\top)^{-1}R$ (l2), $T=U\operatorname{diag}\frac{2S}{1+\sqrt{1+4S^2}}W^\top$ with
    $M=USW^\top$ (Sinkhorn).
    """
    P, R = K.dot(L), Q.dot(L)
    if kind == "softmax":
        T = P.T.dot(R) / tau
    elif kind == "l2":
        T = P.T.dot(_solve_gram(P, R, tau))
    elif kind == "sinkhorn":
        U, S, Wt, _ = dgesdd(P.T.dot(R) / tau)
        T = (U * (2 * S / (1 + np.sqrt(1 + 4 * S * S)))).dot(Wt)
    else:
        raise ValueError(f"kind is softmax, l2 or sinkhorn, got {kind!r}")
    return V.dot(L.dot(T))


def _solve_gram(P, R, tau):
    r"""$\frac2\tau(I+\frac2\tau PP^\top)^{-1}R$ by Cholesky: $2(\tau I+2PP^\top)^{-1}R$."""
    gram = 2 * P.dot(P.T)
    gram.flat[:: len(gram) + 1] += tau
    return 2 * dposv(gram, R)[1]


def slopes_of(L, dL, t):
    r"""Slopes $\rho_i=2t\,u_i^\top Gu_i$ and the singular values $s_i$ of $L=USW^\top$: $Gu_i=\dot Lw_i/s_i$."""
    U, S, Wt, _ = dgesdd(L, full_matrices=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 2 * t * np.einsum("ji,jk,ik->i", U, dL, Wt) / S
    return np.where(ROUNDOFF * S[0] < S, rho, -np.inf), S


def rank_of(history, look):
    """The rank if the rule of MATH e.5 is met over the last decade of looks, else None."""
    return _rank(history, DEAD)


def strict_rank_of(history, look, certified=CERTIFIED):
    r"""The rule of MATH e.5 with three doubts more: dead is $\rho<-0.8$, an alive slope fades, at a small rate.

    A direction that is still to die (onset at $t\gg1$) shows $|\rho|\sim t$: small, steady and wrong; one that dies as
    $t^{-1}$ shows $\rho\to-1$, while slopes of $-0.3$ to $-0.6$ are long transients of directions that live.
    """
    rank = _rank(history, STRICTLY_DEAD)
    if rank is None:
        return None
    size = np.abs(np.array(history[-PER_DECADE - 1 :]))
    size = size[:, size[-1] < ALIVE]
    fading = (np.diff(size, axis=0) <= 0).all() and (size[-1] <= FADE * size[0]).all()
    # A rate |rho|/t hides any onset later than t/|rho|: only a rate below 1/certified excludes one before that time.
    return rank if fading and (size[-1] <= look / certified).all() else None


def _rank(history, dead_below):
    if len(history) <= PER_DECADE:
        return None
    rho = np.array(history[-PER_DECADE - 1 :])
    alive, dead = np.abs(rho) < ALIVE, rho < dead_below
    if not (alive.all(axis=0) | dead.all(axis=0)).all():
        return None
    moved = np.ptp(rho[:, alive[-1]], axis=0)
    return int(alive[-1].sum()) if (moved < STEADY).all() else None


def lsoda_fate(
    kind, Q, K, V, tau, L0, rtol=1e-6, horizon=1e8, earliest=100.0, max_steps=20_000, decide=rank_of, log=None
):
    r"""LSODA on the factor in log time $s=\log(1+\gamma_0t)$, $\gamma_0=\|GL_0\|_F/\|L_0\|_F$, read as MATH e.5 asks.

    The run is one LSODA history (no restarts), looked at four times per decade of $t$ and left at the first look at
    which `decide` has an answer, from $\gamma_0t=$ `earliest` on.
    """
    shape, scale = L0.shape, np.linalg.norm(L0)
    gamma0 = np.linalg.norm(velocity(kind, L0, Q, K, V, tau)) / scale
    if gamma0 == 0:
        return Fate("converged", int(np.linalg.matrix_rank(L0)), 0.0, np.zeros(shape[1]), 0)

    def rhs(s, y):
        return (np.exp(s) / gamma0 * velocity(kind, y.reshape(shape), Q, K, V, tau)).ravel()

    run = ode(rhs).set_integrator("lsoda", rtol=rtol, atol=1e-4 * rtol * scale, nsteps=max_steps // 10)
    run.set_initial_value(L0.ravel(), 0.0)
    history, t = [], 0.0
    looks = 10 ** np.arange(0, np.log10(horizon) + 1e-9, 1 / PER_DECADE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a failed call is seen by successful()
        for look in looks:
            L = run.integrate(np.log1p(look)).reshape(shape)
            steps = int(run._integrator.iwork[10])
            if not (L * L).sum() <= 10 * scale**2:  # growing, or no longer finite: another clock
                return _growth_fate(kind, Q, K, V, tau, L0, gamma0, rtol, max_steps, steps)
            if not run.successful():
                break
            t = look / gamma0
            rho, S = slopes_of(L, velocity(kind, L, Q, K, V, tau), t)
            history.append(rho)
            if log is not None:
                log.append((look, rho, S))
            rank = decide(history, look) if look >= earliest else None
            if rank is not None:
                return Fate("converged", rank, t, rho, steps)
            if steps > max_steps:
                break
    return Fate("undecided", None, t, history[-1] if history else np.full(shape[1], np.nan), steps)


def _growth_fate(kind, Q, K, V, tau, L0, gamma0, rtol, max_steps, steps):
    r"""Growth to $10^9\operatorname{tr}\Sigma_0$ in the clock of MATH e.5.

    The exponent $p=d\log\gamma/d\log\operatorname{tr}\Sigma$ tells blow-up from divergence.
    """
    shape = L0.shape

    def speed(y):
        L = y[:-1].reshape(shape)
        dL = velocity(kind, L, Q, K, V, tau)
        return L, dL, np.linalg.norm(dL) / np.linalg.norm(L)

    def rhs(_, y):
        _, dL, gamma = speed(y)
        return np.append(dL.ravel(), 1.0) / (gamma + 1 / (1 / gamma0 + y[-1]))

    run = DOP853(rhs, 0.0, np.append(L0.ravel(), 0.0), np.inf, rtol=rtol, atol=1e-4 * rtol * np.linalg.norm(L0))
    traces, gammas = [(L0 * L0).sum()], [gamma0]
    while traces[-1] <= GROWN * traces[0] and run.status == "running" and len(traces) < max_steps // 10:
        run.step()
        L, dL, gamma = speed(run.y)
        traces.append((L * L).sum())
        gammas.append(gamma)
    steps, t = steps + len(traces) - 1, run.y[-1]
    slopes = slopes_of(L, dL, t)[0]
    if not traces[-1] > GROWN * traces[0]:
        return Fate("undecided", None, t, slopes, steps)
    late = np.array(traces) > 1e-3 * traces[-1]
    p = np.polyfit(np.log(traces)[late], np.log(gammas)[late], 1)[0]
    if p > 0.2:
        return Fate("blew_up", None, t + traces[-1] / (p * 2 * (L * dL).sum()), slopes, steps)
    return Fate("diverged", None, t, slopes, steps)


def projected_euler_fate(kind, Q, K, V, tau, Sigma0, step=0.1, steps=1000, threshold=0.1):
    r"""The rank of $\Sigma$ after `steps` of $\Sigma\leftarrow\big(\Sigma+h(G\Sigma+\Sigma G^\top)\big)_+$.

    Rank counts the eigenvalues above an absolute `threshold`. Step and number of steps are a guess of common practice,
    not taken from a script. None if the iteration overflows.
    """
    Sigma = Sigma0
    for _ in range(steps):
        eigenvalues, U = np.linalg.eigh(Sigma)
        L = U * np.sqrt(np.maximum(eigenvalues, 0))
        rate = velocity(kind, L, Q, K, V, tau).dot(L.T)
        Sigma = L.dot(L.T) + step * (rate + rate.T)
        if not np.isfinite(Sigma).all():
            return None
    return int((np.linalg.eigvalsh(Sigma) > threshold).sum())
