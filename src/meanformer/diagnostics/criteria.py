r"""The clustering theorems of Geshkovski, Letrouit, Polyanskiy, Rigollet (2023), tried on a run (MATH h).

They are about softmax attention $\dot x_i=V\sum_jP_{ij}x_j$ on tokens of equal weight, and say where the tokens go,
mostly in the frame $z=e^{-tV}x$. A function here looks at the end of a run, in either frame, and returns a `Verdict`:
whether the conclusion is seen, or None if the hypotheses fail or the run is too short to see it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from .. import _checks as checks
from .._scale import norm
from .clusters import box_diameter, clusters_at
from .verdict import SAME, Case, Verdict


def _positive(M: np.ndarray) -> bool:
    """Whether the symmetric part of `M` is positive definite."""
    values = np.linalg.eigvalsh(M + M.T)
    return bool(values[0] > SAME * np.abs(values).max())


def _multiple_of_one(M: np.ndarray) -> float | None:
    """The c with M = c I, if there is one."""
    c = float(M[0, 0])
    return c if norm(M - c * np.eye(len(M))) <= SAME * abs(c) else None


def _limits(**given: Any) -> tuple[float, ...]:
    """The limits of a criterion, positive numbers."""
    return tuple(
        float(checks.positive(value, name, "leave it out for the limit that was tried"))
        for name, value in given.items()
    )


def boolean_attention(
    run: Any, *, small: float = 3e-5, boolean: float = 1e-3, threshold: float = 1e-3, horizon: float = 8.0
) -> Verdict:
    r"""Whether attention on a line ends up Boolean, as a theorem says for $d=1$, $V>0$, $QK>0$ and distinct tokens:

    $$P(t)\to P^*\in\{0,1\}^{n\times n},\qquad\operatorname{rank}P^*\le2,$$

    all rows but at most one listening to the smallest or to the largest token alone.

    At the last save time, without the row that is farthest from this: columns of all but the two extreme tokens are
    below `small`, entries are within `boolean` of 0 or 1, and the rank at the relative `threshold` is at most 2. A run
    with $VT$ below `horizon` that does not show it is too short.

    **Arguments:** a run of `mf.flow` from tokens, in either frame; the limits of the criterion.

    **Returns:** a `Verdict`; `evidence["leaders"]` are the tokens that some row listens to by more than one half.

    ```python
    tokens = mf.PointCloud([[-1.0], [0.5], [1.0]])
    verdict = mf.boolean_attention(mf.flow(mf.Softmax(1.0, 1.0, 1.0), tokens, t1=8.0))
    assert verdict.holds and verdict.evidence["leaders"].tolist() == [0, 2]
    ```

    MATH h, row 1; Geshkovski et al. 2023.
    """
    small, boolean, threshold, horizon = _limits(small=small, boolean=boolean, threshold=threshold, horizon=horizon)
    case = Case(run, "boolean_attention", "attention tends to a Boolean matrix of rank at most 2")
    mu = run.system.mu
    case.asks("d = 1", mu.d == 1)
    case.asks("V > 0", float(case.V[0, 0]) > 0)
    case.asks("Q K > 0", float(case.A[0, 0]) > 0)
    case.asks("distinct tokens", len(np.unique(case.frame[0], axis=0)) == int(case.seen.sum()))

    def judge() -> tuple[bool | None, dict[str, Any]]:
        x = run.original().points
        last = x[int(np.flatnonzero(np.isfinite(np.asarray(x)).all(axis=(1, 2)))[-1])]
        order = np.flatnonzero(case.seen)[np.argsort(np.asarray(last)[case.seen, 0])]
        P = np.asarray(run.field.matrix(mu.with_points(last)), float)[np.ix_(order, order)]
        inner = P[:, 1:-1].max(axis=1, initial=0.0)
        off = np.maximum(np.minimum(P, 1 - P).max(axis=1), inner)
        exception = int(off.argmax())
        rest = np.delete(P, exception, axis=0) if len(P) > 1 else P
        singular = np.linalg.svd(rest, compute_uv=False)
        rank = int((singular > threshold * singular[0]).sum())
        column, defect = (np.delete(v, exception).max(initial=0.0) for v in (inner, np.minimum(P, 1 - P).max(axis=1)))
        top = P.argmax(axis=1)
        evidence = {
            "rank": rank,
            "inner_columns": float(column),
            "off_boolean": float(defect),
            "exceptional_row": float(off[exception]),
            "leaders": order[np.unique(top[P[np.arange(len(P)), top] > 0.5])],
        }
        return bool(rank <= 2 and column <= small and defect <= boolean), evidence

    return case.verdict(judge, float(case.V[0, 0]) * case.span, horizon)


def _extent(points: np.ndarray) -> float:
    """The diameter of the bounding box of `points` and 0, which is a possible limit like the others: it does not shrink
    with a cloud that tends to one point.
    """
    return box_diameter(np.concatenate([points, np.zeros_like(points[:1])]))


def _polytope(
    z: np.ndarray, A: np.ndarray, tolerance: float, defect: float, straggler: float, growth: float, directions: int
) -> tuple[bool, dict[str, Any]]:
    r"""The criterion of `polytope_limit` for tokens `z` of shape `(times, n, d)`."""
    u = np.random.default_rng(0).standard_normal((directions, z.shape[2]))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    support = np.stack([(now @ u.T).max(axis=0) for now in z])
    grown = float(np.diff(support, axis=0).max(initial=0.0)) / max(float(np.abs(z).max()), 1e-300)
    last, size = z[-1], _extent(z[-1])
    at_zero = np.linalg.norm(last, axis=1) <= tolerance * size
    logits = last @ A.T @ last.T
    excess = np.where(at_zero, 0.0, logits.max(axis=1) / np.where(at_zero, 1, np.diag(logits)) - 1)
    found = clusters_at(last, np.ones(len(last)), tolerance * size)
    best = np.array([excess[found.labels == c].min() for c in range(found.count)])
    fixed, away = last[excess <= defect], np.inf
    if len(fixed):
        away = float(KDTree(fixed).query(last)[0].max()) / max(size, 1e-300)
    evidence = {
        "clusters": found.count,
        "defect": float(best.max()),
        "worst_token": float(excess.max()),
        "straggler": away,
        "hull_growth": grown,
        "limits": found.centres,
    }
    return bool(best.max() <= defect) and away <= straggler and grown <= growth, evidence


def polytope_limit(
    run: Any,
    *,
    tolerance: float = 0.01,
    defect: float = 1e-12,
    straggler: float = 0.03,
    growth: float = 1e-5,
    directions: int = 200,
    horizon: float = 8.0,
) -> Verdict:
    r"""Whether the tokens $z=e^{-\lambda t}x$ tend to 0, or to points of the boundary of a convex polytope, generically
    its vertices, as a theorem says for $V=\lambda I$, $\lambda>0$, $A+A^\top\succ0$.

    As $t\to\infty$ a token listens to $\arg\max_l(Az)\cdot z_l$ alone and moves towards the mean of that set, so a
    limit $z$ is 0, or has

    $$(Az)\cdot z=\max_l\,(Az)\cdot z_l,\qquad\text{for }A=I:\quad|z|^2=\max_l\,z\cdot z_l .$$

    At the last save time, of each cluster at `tolerance` one token does, up to `defect` of $(Az)\cdot z$, or lies at 0;
    every token is within `straggler` of such a token; and the convex hull never grew, by its support function in some
    `directions`, by more than `growth` of the largest token. Lengths are fractions of the diameter of the tokens and 0
    at the end. Tokens approach their limits like $e^{-\lambda t}$: if this is not seen, and $\lambda T$ is below
    `horizon` or a token moved by more than `tolerance` during the last $1/\lambda$, the run is too short. One cluster
    passes: a point is a polytope too.

    **Arguments:** a run of `mf.flow` from tokens, in either frame; the limits of the criterion.

    **Returns:** a `Verdict`; `evidence["limits"]`, shape `(clusters, d)`, are the centres of the clusters of $z$.

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    verdict = mf.polytope_limit(mf.flow(mf.Softmax(I, I, I), tokens, t1=8.0))
    assert verdict.holds and verdict.evidence["limits"].shape == (3, 2)  # a triangle
    ```

    MATH h, row 2; Geshkovski et al. 2023.
    """
    tolerance, defect, straggler, growth, horizon = _limits(
        tolerance=tolerance, defect=defect, straggler=straggler, growth=growth, horizon=horizon
    )
    directions = checks.whole(directions, "directions")
    case = Case(run, "polytope_limit", "z = e^(-tV) x tends to 0 and to points of the boundary of a convex polytope")
    rate = _multiple_of_one(case.V) or 0.0
    case.asks("V = c I with c > 0", rate > 0)
    case.asks("A + A^T > 0", _positive(case.A))

    def judge() -> tuple[bool | None, dict[str, Any]]:
        z = case.along(np.eye(len(case.V)), rate)
        seen, evidence = _polytope(z, case.A, tolerance, defect, straggler, growth, directions)
        evidence["limits"] *= case.unit
        return seen, {**evidence, "moving": case.moved(z, rate) / max(_extent(z[-1]), 1e-300)}

    return case.verdict(judge, rate * case.span, horizon, tolerance)


@dataclass(frozen=True)
class _Top:
    r"""The largest eigenvalue `rate` of $V$, real and positive, whose space is invariant with $V$ a multiple of the
    identity on it: a basis `right` of that space, and the dual basis `left`, both as columns. `next` is the modulus of
    the next eigenvalue, smaller than `rate`.
    """

    rate: float
    right: np.ndarray
    left: np.ndarray
    next: float

    @property
    def speed(self) -> float:
        r"""How fast the limit is approached: $\lambda_1$, or $2(\lambda_1-|\lambda_2|)$ if that is less, since the next
        eigenvalue moves the tokens by $e^{-(\lambda_1-|\lambda_2|)t}$ of their size.
        """
        return min(self.rate, 2 * (self.rate - self.next))

    def inner(self, A: np.ndarray) -> np.ndarray:
        r"""$A$ on the space of the top, in the basis `right`."""
        return self.right.T @ A @ self.right


def _top_of(V: np.ndarray) -> _Top | None:
    """The top of `V`; None if its largest eigenvalue is not of this kind."""
    values = np.linalg.eigvals(V)
    largest = values[np.abs(values).argmax()]
    if not (largest.real > 0 and abs(largest.imag) <= SAME * abs(largest)):
        return None
    # A multiple eigenvalue without eigenvectors enough is found with an error of a root of the rounding.
    near = np.abs(values - largest) <= 1e-5 * abs(largest)
    rate, following = float(values[near].real.mean()), float(np.abs(values[~near]).max(initial=0.0))
    first = len(V) - int(near.sum())
    U, singular, W = np.linalg.svd(V - rate * np.eye(len(V)))
    if singular[first] > SAME * max(rate, singular[0]) or following >= rate * (1 - SAME):
        return None
    right, left = W[first:].T, U[:, first:]
    return _Top(rate, right, left @ np.linalg.inv(left.T @ right).T, following)


def hyperplane_limit(run: Any, *, gap: float = 0.02, width: float = 0.1, horizon: float = 8.0) -> Verdict:
    r"""Whether the tokens $z=e^{-tV}x$ approach at most three parallel hyperplanes, as a theorem says where the
    eigenvalue $\lambda_1$ of $V$ of largest modulus is real, positive and simple, and $Q\phi_1\cdot K\phi_1>0$ for its
    eigenvector:

    $$\phi_1^*\cdot z_i(t)\to\{c_-,0,c_+\},\qquad c_-\le0\le c_+,$$

    with $\phi_1^*$ the left eigenvector.

    At the last save time the coordinate along $\phi_1$ is cut where it has a gap of more than `gap` of its range, 0
    included: there are at most two cuts, and no part is wider than `width` of the range. If that is not so, and
    $\lambda_1T$ or $2(\lambda_1-|\lambda_2|)T$ is below `horizon`, or a token moved by more than `gap` during the last
    $1/\lambda_1$, the run is too short: a straggler may be on its way.

    **Arguments:** a run of `mf.flow` from tokens, in either frame; the limits of the criterion.

    **Returns:** a `Verdict`; `evidence["values"]` are the coordinates of the hyperplanes.

    ```python
    I, V = jnp.eye(2), jnp.diag(jnp.array([1.0, 0.5]))
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    verdict = mf.hyperplane_limit(mf.flow(mf.Softmax(I, I, V), tokens, t1=8.0))
    assert verdict.holds and verdict.evidence["hyperplanes"] == 3
    ```

    MATH h, row 3; Geshkovski et al. 2023.
    """
    gap, width, horizon = _limits(gap=gap, width=width, horizon=horizon)
    case = Case(run, "hyperplane_limit", "z = e^(-tV) x approaches at most three parallel hyperplanes")
    top = _top_of(case.V)
    simple = top if top is not None and top.right.shape[1] == 1 else None
    case.asks("the largest eigenvalue of V is real, positive and simple", simple is not None)
    case.asks("Q phi . K phi > 0 for its eigenvector", simple is not None and _positive(simple.inner(case.A)))

    def judge() -> tuple[bool | None, dict[str, Any]]:
        assert top is not None
        z = case.along(top.left, top.rate)
        values = np.sort(z[-1][:, 0])
        extent = max(_extent(z[-1]), 1e-300)
        parts = np.split(values, np.flatnonzero(np.diff(values) > gap * extent) + 1)
        widest = max(part[-1] - part[0] for part in parts) / extent
        evidence = {
            "hyperplanes": len(parts),
            "width": float(widest),
            "values": np.array([part.mean() for part in parts]) * case.unit,
            "rate": top.rate,
            "moving": case.moved(z, top.rate) / extent,
        }
        if case.rounding(top.left, top.rate) > gap / 10 * extent:
            return None, evidence
        return bool(len(parts) <= 3 and widest <= width), evidence

    return case.verdict(judge, (top.speed if top else 0.0) * case.span, horizon, gap)


def paranormal_limit(
    run: Any,
    *,
    tolerance: float = 0.01,
    defect: float = 1e-2,
    straggler: float = 0.03,
    horizon: float = 8.0,
) -> Verdict:
    r"""Whether the tokens $z=e^{-tV}x$, projected on $F$ along $G$, approach 0 or the boundary of a polytope of $F$, as
    a theorem says for

    $$\mathbb R^d=F\oplus G\ \text{invariant under }V,\qquad V|_F=\lambda I,\ \lambda>\rho(V|_G),\qquad
    Qx\cdot Kx>0\ \text{ on }F\setminus0,$$

    with $\rho$ the spectral radius and $\lambda>0$.

    $F$ is the eigenspace of the largest eigenvalue. In a basis of it the projections are judged as by `polytope_limit`,
    with $A$ restricted to $F$; only that the hull shrinks is not asked, since what is left of $G$ moves it for a while.
    Nothing is asked in $G$.

    **Arguments:** a run of `mf.flow` from tokens, in either frame; the limits of the criterion.

    **Returns:** a `Verdict`; `evidence["dimension"]` is that of $F$.

    ```python
    I, V = jnp.eye(2), jnp.diag(jnp.array([1.0, 0.5]))
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    verdict = mf.paranormal_limit(mf.flow(mf.Softmax(I, I, V), tokens, t1=8.0))
    assert verdict.holds and verdict.evidence["dimension"] == 1
    ```

    MATH h, row 4; Geshkovski et al. 2023.
    """
    tolerance, defect, straggler, horizon = _limits(
        tolerance=tolerance, defect=defect, straggler=straggler, horizon=horizon
    )
    case = Case(run, "paranormal_limit", "along G, z = e^(-tV) x tends to 0 and to the boundary of a polytope of F")
    top = _top_of(case.V)
    case.asks(
        "V = c I with c > 0 on an invariant F, and smaller on its invariant complement G",
        top is not None,
    )
    case.asks("Qx . Kx > 0 on F", top is not None and _positive(top.inner(case.A)))

    def judge() -> tuple[bool | None, dict[str, Any]]:
        assert top is not None
        inside = case.along(top.left, top.rate)
        seen, evidence = _polytope(inside, top.inner(case.A), tolerance, defect, straggler, np.inf, directions=1)
        evidence.pop("hull_growth")
        evidence["limits"] *= case.unit
        extent = max(_extent(inside[-1]), 1e-300)
        evidence = {"dimension": top.right.shape[1], **evidence, "moving": case.moved(inside, top.rate) / extent}
        return (None if case.rounding(top.left, top.rate) > tolerance / 10 * extent else seen), evidence

    return case.verdict(judge, (top.speed if top else 0.0) * case.span, horizon, tolerance)


def collapse_limit(run: Any, *, exponent: float = 0.1, mean: float = 0.01, horizon: float = 20.0) -> Verdict:
    r"""Whether all tokens collapse to 0, as a theorem says for $V=-cI$, $c>0$, $A=A^\top\succ0$ (stated for $A=I$;
    coordinates $A^{1/2}x$ bring any such $A$ there), the mean exponentially and the spread like $t^{-1/2}$.

    The rate is not from the theorem: it is that of a Gaussian, and of tokens near 0, where the field is linear to
    leading order. In these coordinates $\dot\Sigma=-2c\Sigma^2$, so $\Sigma=(\Sigma_0^{-1}+2ct)^{-1}$. The criterion
    asks for it: between about half of the time and the end the radius

    $$\max_i|A^{1/2}x_i(t)|\sim t^{-1/2},$$

    up to `exponent`, and the mean ends below `mean` of the radius. The unit of time is $1/c$, or $1/(c\sigma)$ for the
    least variance $\sigma<1$ of $A^{1/2}x$ at the start; a run below `horizon` such units that does not show it is too
    short.

    **Arguments:** a run of `mf.flow` from tokens, in either frame; the limits of the criterion.

    **Returns:** a `Verdict`; `evidence["exponent"]` is the power of time that was measured.

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    verdict = mf.collapse_limit(mf.flow(mf.Softmax(I, I, -I), tokens, t1=20.0))
    assert verdict.holds and abs(verdict.evidence["exponent"] + 0.5) < 0.1
    ```

    MATH h, row 5; Geshkovski et al. 2023.
    """
    exponent, mean, horizon = _limits(exponent=exponent, mean=mean, horizon=horizon)
    case = Case(run, "collapse_limit", "all tokens collapse to 0, the spread like t^(-1/2)")
    rate, A = -(_multiple_of_one(case.V) or 0.0), case.A
    case.asks("V = -c I with c > 0", rate > 0)
    case.asks("A = A^T > 0", bool(norm(A - A.T) <= SAME * norm(A)) and _positive(A))
    if not case.applies:
        return case.verdict(lambda: (None, {}), 0.0, horizon)
    x = np.asarray(case.run.original().points, float)[: len(case.times)][:, case.seen] / case.unit
    x = x @ np.linalg.cholesky(A)
    variances = np.linalg.eigvalsh(np.atleast_2d(np.cov(x[0].T, bias=True)))
    least = float(variances[variances > SAME * variances.max()].min(initial=1.0))

    def judge() -> tuple[bool | None, dict[str, Any]]:
        radius, clock = np.linalg.norm(x, axis=2).max(axis=1), case.times - case.times[0]
        half = int(np.abs(clock - clock[-1] / 2).argmin())
        fall = float("nan")
        if 0 < clock[half] < clock[-1] and radius[-1] > 0:
            fall = float(np.log(radius[-1] / radius[half]) / np.log(clock[-1] / clock[half]))
        left = float(np.linalg.norm(x[-1].mean(axis=0))) / max(float(radius[-1]), 1e-300)
        evidence = {"radius": float(radius[-1]), "start": float(radius[0]), "exponent": fall, "mean": left}
        return abs(fall + 0.5) <= exponent and left <= mean, evidence

    return case.verdict(judge, rate * case.span * least, horizon)
