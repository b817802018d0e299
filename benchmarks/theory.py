"""The bounds and rates of the theory on many systems (TARGETS A7 to A11, B1 to B3), written to benchmarks/THEORY.md.

python -m benchmarks.theory              # everything, about half an hour on two cores
python -m benchmarks.theory --only radius stability
"""

import argparse
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import meanformer as mf
from benchmarks import criteria, representations
from meanformer.diagnostics.bounds import grown_radius

N, D = 8, 3
TIMES = np.linspace(0, 1.5, 7)


class Wave(eqx.Module):
    """Weights that move: M0 + M1 sin(w t), for each of the matrices of a field."""

    first: tuple
    second: tuple
    speed: jax.Array
    make: Callable[..., Any] = eqx.field(static=True)

    def __call__(self, t: jax.Array) -> Any:
        return self.make(*(a + jnp.sin(self.speed * t) * b for a, b in zip(self.first, self.second, strict=True)))


def two_heads(Q1: Any, K1: Any, V1: Any, Q2: Any, K2: Any, V2: Any, W1: Any, W2: Any) -> Any:
    """A softmax head and an L2 head."""
    return mf.MultiHead([mf.Softmax(Q1, K1, V1), mf.L2(Q2, K2, V2)], W=[W1, W2])


KINDS: dict[str, tuple[Callable[..., Any], int]] = {
    "softmax": (mf.Softmax, 3),
    "L2": (mf.L2, 3),
    "Sinkhorn": (mf.Sinkhorn, 3),
    "sigmoid": (mf.Sigmoid, 3),
    "two heads": (two_heads, 8),
    "masked softmax": (lambda *M: mf.Causal(mf.Softmax(*M)), 3),
    "masked L2": (lambda *M: mf.Causal(mf.L2(*M)), 3),
    "masked sigmoid": (lambda *M: mf.Causal(mf.Sigmoid(*M)), 3),
    "masked Sinkhorn": (lambda *M: mf.Causal(mf.Sinkhorn(*M)), 3),
    "masked heads": (lambda *M: mf.Causal(two_heads(*M)), 8),
}


def radius_table(systems: int = 200) -> list[str]:
    """A8: the support radius against its bound, for random weights that depend on time."""
    lines = [
        f"## A8: R(t) against exp(int |V|) R0, {systems} random time-dependent systems per kind",
        "",
        f"{N} tokens in the unit ball of R^{D} with random weights, Q, K, V = M0 + M1 sin(w t) with normal entries, "
        f"t = {TIMES[-1]}.",
        "",
        "| kind | systems | violations | largest R / bound at t > 0 | median at the end | failed runs | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, (make, count) in KINDS.items():
        began = time.perf_counter()
        rng = np.random.default_rng(0)
        first, second = (tuple(jnp.asarray(rng.normal(size=(systems, D, D))) for _ in range(count)) for _ in range(2))
        # Logits of some tens only, and growth by some e^5: Sinkhorn slows down beyond, and two heads grow faster.
        sizes = [0.5, 0.5, 1.0] if "Sinkhorn" in name else [1.0] * 3 if count == 3 else [1.0] * 6 + [0.3] * 2
        first, second = (tuple(size * M for size, M in zip(sizes, part, strict=True)) for part in (first, second))
        speed = jnp.asarray(rng.uniform(0.5, 6, size=systems))
        X = rng.normal(size=(systems, N, D))
        X = X / np.linalg.norm(X, axis=2, keepdims=True) * rng.random((systems, N, 1)) ** (1 / D)
        X[::3] /= np.linalg.norm(X[::3], axis=2, keepdims=True)
        weights = rng.dirichlet(np.ones(N), size=systems)

        @eqx.filter_jit
        def radii(first: Any, second: Any, speed: Any, X: Any, w: Any, make: Any = make) -> Any:
            field = mf.Scheduled(Wave(first, second, speed, make))
            mu = mf.PointCloud(X, w).with_positions()
            run = mf.flow(field, mu, float(TIMES[-1]), save=TIMES, rtol=1e-7)
            zero = jnp.zeros(())
            bounds = [grown_radius(field, mu.radius, zero, jnp.asarray(t)) for t in TIMES]
            return run.states.radius / jnp.stack(bounds), run.outcome.code

        ratios, codes = [], []
        for k in range(systems):
            one = [jax.tree.map(lambda a, k=k: a[k], part) for part in (first, second, speed)]
            ratio, code = radii(*one, jnp.asarray(X[k]), jnp.asarray(weights[k]))
            ratios.append(np.asarray(ratio))
            codes.append(int(code))
        table = np.array(ratios)
        whole = np.array(codes) == 0
        violations = int((table[whole] > 1 + 1e-6).any(axis=1).sum())
        lines.append(
            f"| {name} | {systems} | {violations} | {table[whole][:, 1:].max():.4f} "
            f"| {np.median(table[whole][:, -1]):.3f} | {int((~whole).sum())} | {time.perf_counter() - began:.0f} |"
        )
        print(lines[-1], flush=True)
    return [*lines, ""]


def stability_table(systems: int = 30) -> list[str]:
    """A9: W_p(t) / W_p(0) against its bound, on random and on the worst infinitesimal pairs."""
    lines = [
        f"## A9: stability of W_p, {systems} systems per kind, p = 1, 2, 4",
        "",
        "Per system: an unrelated cloud with other weights (plain kinds), random noise of sizes 0.5 and 1e-3, a",
        "translation, one token moved, and the direction in which the flow map stretches most (the top singular vector",
        "of its derivative). Masked kinds: the conditional distance, p = 2 and 4, with the factor of Hardy.",
        "`closest` is the largest log ratio over its bound.",
        "",
        "| kind | pairs | violations | closest | largest ratio W_p(t)/W_p(0) | s |",
        "|---|---|---|---|---|---|",
    ]
    t1, n, d = 0.5, 4, 2
    for name in ("softmax", "L2", "sigmoid", "two heads", "masked softmax", "masked L2", "masked sigmoid"):
        began = time.perf_counter()
        make, count = KINDS[name]
        masked = name.startswith("masked")
        distance = mf.conditional_wasserstein if masked else mf.wasserstein
        rng = np.random.default_rng(1)

        @eqx.filter_jit
        def end(matrices: Any, X: Any, w: Any, make: Any = make) -> Any:
            run = mf.flow(make(*matrices), mf.PointCloud(X, w).with_positions(), t1, save=2, rtol=1e-9)
            return run.final.points

        closest, largest, violations, pairs = -np.inf, 0.0, 0, 0
        for _ in range(systems):
            matrices = tuple(jnp.asarray(0.5 * rng.normal(size=(d, d))) for _ in range(count))
            X, w = rng.uniform(-0.7, 0.7, size=(n, d)), rng.dirichlet(np.ones(n))
            jacobian = np.asarray(jax.jacrev(lambda x, m=matrices, w=w: end(m, x, w))(jnp.asarray(X)))
            root = np.sqrt(np.repeat(w, d))
            scaled = root[:, None] * jacobian.reshape(n * d, n * d) / root[None]
            steepest = (np.linalg.svd(scaled)[2][0] / root).reshape(n, d)
            moves = [0.5 * rng.normal(size=(n, d)), 1e-3 * rng.normal(size=(n, d)), np.full((n, d), 0.01)]
            moves += [1e-4 * steepest, np.eye(n)[:, :1] * np.array([[0.1, 0.0]])]
            others = [(X + move, w) for move in moves]
            if not masked:
                others.append((rng.uniform(-0.7, 0.7, size=(n, d)), rng.dirichlet(np.ones(n))))
            mu, field = mf.PointCloud(X, w).with_positions(), make(*matrices)
            final = mu.with_points(end(matrices, jnp.asarray(X), jnp.asarray(w)))
            for Y, v in others:
                nu = mf.PointCloud(Y, v).with_positions()
                there = nu.with_points(end(matrices, jnp.asarray(Y), jnp.asarray(v)))
                for p in (2, 4) if masked else (1, 2, 4):
                    bound = mf.stability_bound(field, mu, nu, t1, p=p)
                    assert bound is not None
                    ratio = distance(final, there, p) / distance(mu, nu, p)
                    pairs += 1
                    violations += bool(np.log(ratio) > bound.exponent + 1e-6)
                    closest, largest = max(closest, np.log(ratio) / bound.exponent), max(largest, ratio)
        lines.append(
            f"| {name} | {pairs} | {violations} | {closest:.3f} | {largest:.3f} | {time.perf_counter() - began:.0f} |"
        )
        print(lines[-1], flush=True)
    return [*lines, "", *sharpness()]


def sharpness() -> list[str]:
    """How close the bounds come in their extremal cases."""
    two = mf.PointCloud([[1.0], [-1.0]], [1e-7, 1 - 1e-7])
    field = mf.Softmax(0.5, 0.5, 0.7)
    change = jax.jacfwd(lambda y: field(two.with_points(jnp.stack([y, two.points[1]])), jnp.ones((1, 1)))[0])
    constants = mf.lipschitz_constants(field, 1.0)
    assert constants is not None and constants.mu is not None
    in_mu = abs(float(change(two.points[0])[0, 0])) / 1e-7 / float(constants.mu)
    even = mf.PointCloud([[1.0], [-1.0]])
    in_x = float(jax.jacfwd(lambda x: field(even, x[None])[0])(jnp.zeros(1))[0, 0]) / float(constants.x)
    mean = mf.Softmax(0.0, 1.0, 0.8)
    cloud = mf.uniform_ball(1).sample(6, key=jax.random.key(0))
    moved = cloud.with_points(cloud.points + 0.01)
    bound = mf.stability_bound(mean, cloud, moved, 1.0)
    assert bound is not None
    ends = [mf.flow(mean, mu, 1.0, save=2, rtol=1e-10).final for mu in (cloud, moved)]
    ratio = mf.wasserstein(*ends) / mf.wasserstein(cloud, moved) / bound.constant
    return [
        "Sharpness: measured over bound in the extremal two-point cases of MATH d.2 and for a translation with Q = 0:",
        f"L_mu of softmax {in_mu:.6f}, L_x of softmax {in_x:.6f}, stability of W_2 {ratio:.6f}.",
        "",
    ]


def rate_table(large: bool = True) -> list[str]:
    """A7, and the mean-field rate of every kind."""
    lines = [
        "## A7 and the mean-field limit",
        "",
        "Root mean square error of the covariance at t1 over repeats; slope of the fit, 95 % interval by bootstrap.",
        "",
        "| setting | reference | n (repeats): error | slope | 95 % interval | s |",
        "|---|---|---|---|---|---|",
    ]
    I = jnp.eye(2)
    a7 = mf.Gaussian([0.0, 0.0], cov=[[0.4, 0.0], [0.0, 0.1]])
    Q, K, V = (0.5 * M for M in representations.PLANE_MATRICES)
    plain = mf.Gaussian([0.2, -0.1], cov=[[0.4, 0.1], [0.1, 0.3]])
    heads = mf.MultiHead([mf.Softmax(Q, K, V), mf.Sigmoid(K, Q, V)])
    sizes, repeats = (250, 1000, 4000, 16_384), (64, 64, 24, 4)
    settings: list[tuple[str, Any, Any, tuple, tuple]] = [
        ("A7: softmax, A = I/2, V = I, t = 1", mf.Softmax(I / 2, I, I), a7, sizes, repeats)
    ]
    sizes, repeats = (64, 256, 1024), (48, 48, 24)
    settings += [
        ("softmax", mf.Softmax(Q, K, V), plain, sizes, repeats),
        ("L2", mf.L2(Q, K, V), plain, sizes, repeats),
        ("Sinkhorn", mf.Sinkhorn(Q, K, V), plain, (32, 128, 512), (48, 24, 12)),
        ("sigmoid", mf.Sigmoid(Q, K, V), plain, sizes, repeats),
        ("two heads, softmax and sigmoid", heads, plain, sizes, repeats),
        ("masked softmax", mf.Causal(mf.Softmax(Q, K, V)), plain, sizes, repeats),
        ("masked sigmoid", mf.Causal(mf.Sigmoid(Q, K, V)), plain, sizes, repeats),
        ("masked heads", mf.Causal(heads), plain, sizes, repeats),
        ("masked Sinkhorn", mf.Causal(mf.Sinkhorn(Q, K, V)), plain, (8, 24, 72), (32, 16, 12)),
    ]
    for name, field, law, n, counts in settings if large else settings[1:]:
        began = time.perf_counter()
        # Twelve times the largest n, so that the reference hardly matters; a masked Sinkhorn costs n^3.
        many = None if not name.startswith("masked S") else 288
        rate = mf.mean_field_rate(
            field, law, 1.0, n=n, repeats=counts, key=jax.random.key(7), rtol=1e-4, reference=many, progress=False
        )
        cells = ", ".join(f"{a} ({c}): {e:.2e}" for a, c, e in zip(rate.n, counts, rate.rms, strict=True))
        low, high = rate.interval
        lines.append(
            f"| {name} | {rate.reference} | {cells} | {rate.slope:.3f} | {low:.3f} to {high:.3f} "
            f"| {time.perf_counter() - began:.0f} |"
        )
        print(lines[-1], flush=True)
    return [*lines, ""]


def euler_table() -> list[str]:
    """A10: layers against the flow, in W2."""
    lines = [
        "## A10: depth L against the flow at t = 1, in W2",
        "",
        "| kind | L = 16 | 32 | 64 | 128 | 256 | orders |",
        "|---|---|---|---|---|---|---|",
    ]
    tokens = mf.uniform_ball(2).sample(64, key=jax.random.key(0)).with_positions()
    Q, K, V = representations.PLANE_MATRICES
    fields = {name: make(Q, K, V) for name, (make, count) in KINDS.items() if count == 3 and name != "masked Sinkhorn"}
    fields["two heads"] = two_heads(Q, K, V, K, Q, V, jnp.eye(2), -0.5 * jnp.eye(2))
    for name, field in fields.items():
        exact = mf.flow(field, tokens, 1.0, save=2, rtol=1e-10, progress=False).final
        depths = (16, 32, 64, 128, 256)
        errors = [mf.wasserstein(mf.layers(field, tokens, L, save="final").final, exact, 2) for L in depths]
        orders = ", ".join(f"{o:.3f}" for o in -np.diff(np.log2(errors)))
        lines.append(f"| {name} | " + " | ".join(f"{e:.2e}" for e in errors) + f" | {orders} |")
        print(lines[-1], flush=True)
    return [*lines, ""]


def criteria_table() -> list[str]:
    """B1 to B3, 20 seeds each."""
    lines = [
        "## B1 to B3: the conclusions of Geshkovski et al. (2023), 20 seeds each",
        "",
        "Of every number the median, the least and the largest. `python -m benchmarks.criteria`.",
        "",
        "| setting | T | seen | not seen | undecided | numbers | s |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = criteria.study(20)
    lines += [str(row) for row in rows] + [""]
    for row in (row for row in rows if not row.name.startswith("control")):
        for seed, verdict in row.failures:
            numbers = ", ".join(f"{k} {verdict.evidence[k]:.3g}" for k in row.numbers) if verdict.evidence else ""
            lines.append(f"- {row.name}, T = {row.t1:g}, seed {seed}: {verdict.holds}; {numbers or verdict.hypotheses}")
    print("\n".join(lines), flush=True)
    return [*lines, ""]


PARTS: dict[str, Callable[[], list[str]]] = {
    "representations": representations.tables,
    "rates": rate_table,
    "radius": radius_table,
    "stability": stability_table,
    "euler": euler_table,
    "criteria": criteria_table,
}


def main() -> None:
    """Measure, print and write; parts that are not asked for keep what the file says of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("THEORY.md"))
    options = parser.parse_args()
    kept = _sections(options.out)
    for name in options.only:
        kept[name] = "\n".join([f"<!-- {name} -->", *PARTS[name]()])
        head = [
            "# The theory, measured",
            "",
            f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, jax {jax.__version__}, "
            "float64, two cores. Written by `make theory`.",
            "",
        ]
        options.out.write_text("\n".join(head) + "\n".join(kept[part] for part in PARTS if part in kept))


def _sections(path: Path) -> dict[str, str]:
    """The parts that a former run has written."""
    text = path.read_text() if path.exists() else ""
    marks = {name: text.find(f"<!-- {name} -->") for name in PARTS}
    starts = sorted(place for place in marks.values() if place >= 0)
    ends = [*starts[1:], len(text)]
    return {
        name: text[place : ends[starts.index(place)]].rstrip() + "\n" for name, place in marks.items() if place >= 0
    }


if __name__ == "__main__":
    main()
