"""Hypothesis strategies for attention problems, on few shapes: values change, compiled programs do not."""

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import meanformer as mf

from . import golden


@dataclass(frozen=True)
class Problem:
    """Tokens, weights, query points off the support, and one head."""

    X: np.ndarray
    w: np.ndarray
    x: np.ndarray
    Q: np.ndarray
    K: np.ndarray
    V: np.ndarray
    tau: float
    b: float

    @property
    def cloud(self):
        return mf.PointCloud(self.X, self.w)

    @property
    def mean(self):
        return self.w @ self.X

    def field(self, kind, **options):
        return golden.make(kind, self.Q, self.K, self.V, self.tau, self.b, **{"tol": 1e-14, **options})

    def arguments(self):
        """What `dense.velocity` takes after the kind and the query points."""
        return self.X, self.w, self.Q, self.K, self.V, self.tau, self.b

    def but(self, **changes):
        return replace(self, **changes)

    def gap(self, points=None):
        """Smallest distance between the two largest logits: hardmax is stable under rounding only if it is not tiny."""
        x = self.x if points is None else points
        c = np.sort((x @ self.Q.T) @ (self.X @ self.K.T)[self.w > 0].T, axis=1)
        return np.inf if c.shape[1] == 1 else float((c[:, -1] - c[:, -2]).min())


def arrays(shape, size=1.0):
    """Arrays with entries in [-size, size]: the corners hypothesis likes (zeros, repeats) and generic ones."""
    corners = hnp.arrays(np.float64, shape, elements=st.floats(-size, size, allow_subnormal=False))
    generic = st.integers(0, 2**32 - 1).map(lambda seed: np.random.default_rng(seed).uniform(-size, size, shape))
    return st.one_of(generic, corners)


@st.composite
def weights(draw, n, zeros=True):
    """Weights that sum to one, some of them zero; the first never is."""
    w = draw(hnp.arrays(np.float64, n, elements=st.floats(0.05, 1.0), fill=st.nothing()))
    if zeros:
        w[1:] *= draw(hnp.arrays(np.bool_, n - 1, elements=st.integers(0, 4).map(bool)))
    return w / w.sum()


@st.composite
def problems(draw, n=6, d=2, k=2, size=1.2, zeros=True):
    """Attention problems with logits up to about 10."""
    return Problem(
        X=draw(arrays((n, d), size)),
        w=draw(weights(n, zeros)),
        x=draw(arrays((n, d), size)),
        Q=draw(arrays((k, d))),
        K=draw(arrays((k, d))),
        V=draw(arrays((d, d))),
        tau=draw(st.floats(0.5, 2.0)),
        b=draw(st.floats(-2.0, 2.0)),
    )
