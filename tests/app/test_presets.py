"""The presets of the page: each is an experiment that the page may run, and shows what its words say."""

import functools
import json
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from scipy.spatial import ConvexHull

import meanformer as mf
from meanformer.app.checked import check_experiment, check_request
from meanformer.app.presets import FOLDER, GROUPS, presets
from meanformer.experiments.build import Problem, build
from meanformer.experiments.config import experiment_of
from meanformer.experiments.reproductions.castin2025.cone import regimes, starts
from meanformer.experiments.reproductions.castin2025.gaussians import centred, kernel_limit, relative_errors

TEXTS = {preset["name"]: preset["text"] for preset in presets()}


def problem(name: str, *changes: tuple[str, str]) -> Problem:
    """The problem of a preset, with words of its file changed."""
    text = TEXTS[name]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return build(experiment_of(text, f"{name}.toml", FOLDER))


@functools.cache
def run_of(name: str) -> mf.Trajectory:
    return problem(name).run(progress=False)


def points(name: str) -> np.ndarray:
    return np.asarray(run_of(name).points)


def corners(cloud: np.ndarray) -> np.ndarray:
    return cloud[ConvexHull(cloud).vertices]


def area(cloud: np.ndarray) -> float:
    return float(ConvexHull(cloud).volume)


def test_every_file_has_its_place_and_its_words():
    listed = presets()
    assert sorted(preset["name"] for preset in listed) == sorted(path.stem for path in FOLDER.glob("*.toml"))
    assert [preset["name"] for preset in listed] == [name for names in GROUPS.values() for name in names]
    assert {preset["view"] for preset in listed} == {"tokens", "gaussian", "density"}
    assert len({preset["title"] for preset in listed}) == len(listed)
    for preset in listed:
        assert 40 < len(preset["about"]) < 260 and preset["about"].endswith(".")
        assert "title" not in preset["experiment"] and "attention" in preset["experiment"]
    json.dumps(listed, allow_nan=False)  # t1 = inf is a word


@pytest.mark.parametrize("name", TEXTS)
def test_each_builds_within_the_limits_of_the_page(name):
    check_request(tomllib.loads(TEXTS[name]))
    experiment = experiment_of(TEXTS[name], f"{name}.toml", FOLDER)
    check_experiment(experiment)
    view = next(view for (view, _), names in GROUPS.items() if name in names)
    measure = build(experiment).measure
    assert isinstance(measure, {"tokens": mf.PointCloud, "gaussian": mf.Gaussian, "density": mf.Density}[view])
    assert measure.d in {"gaussian": (2,), "density": (1,), "tokens": (1, 2, 3)}[view]


def test_listing_them_loads_no_jax():
    code = (
        "import sys; from meanformer.app.presets import presets; presets();"
        "print(sorted({'jax', 'pydantic', 'numpy', 'fastapi'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_clusters_of_a_polygon():
    verdict = mf.polytope_limit(run_of("polygon"))
    assert verdict.holds is not False and verdict.evidence["hull_growth"] < 1e-3
    cloud = points("polygon")
    assert area(cloud[-1]) < 0.9 * area(cloud[0])
    found = mf.clusters(run_of("polygon").final)
    at_corners = [centre in corners(found.centres) for centre in found.centres]
    assert found.weights[at_corners].sum() > 0.5


def test_the_clusters_of_a_polytope():
    verdict = mf.polytope_limit(run_of("polytope"))
    assert verdict.holds
    found = mf.clusters(run_of("polytope").final)
    outer = ConvexHull(found.centres).vertices
    assert found.count < 20 and found.weights[outer].sum() > 0.5


def test_parallel_lines():
    verdict = mf.hyperplane_limit(run_of("hyperplanes"))
    assert verdict.holds and verdict.evidence["hyperplanes"] <= 3
    first, last = points("hyperplanes")[[0, -1]]
    assert last[:, 1].std() > 0.2 * first[:, 1].std()


def test_leaders_on_a_line():
    verdict = mf.boolean_attention(run_of("leaders"))
    last = points("leaders")[-1, :, 0]
    assert verdict.holds is not False
    assert set(verdict.evidence["leaders"].tolist()) <= {int(last.argmin()), int(last.argmax())}


def test_softmax_and_l2_on_the_same_petals():
    np.testing.assert_array_equal(points("softmax-petals")[0], points("l2-neighbours")[0])
    softmax, l2 = (mf.clusters(run_of(name).final) for name in ("softmax-petals", "l2-neighbours"))
    assert softmax.count == 5 == len(corners(softmax.centres))
    assert l2.count > 5 and len(corners(l2.centres)) < l2.count


def test_sinkhorn_collapses_what_q_sees():
    run = run_of("sinkhorn-collapse")
    np.testing.assert_allclose(run.final.mean, 0, atol=1e-4)
    seen, other = np.array([1.8, 0.9]) / np.hypot(1.8, 0.9), np.array([-0.9, 1.8]) / np.hypot(1.8, 0.9)
    first, last = points("sinkhorn-collapse")[[0, -1]]
    assert (last @ seen).std() < 0.2 * (first @ seen).std()
    assert (last @ other).std() > 0.5 * (first @ other).std()


def test_sigmoid_turns_and_stretches():
    run = run_of("sigmoid-rotation")
    assert run.outcome.kind == "REACHED"
    spectra, axes = zip(*(np.linalg.eigh(np.cov(cloud.T)) for cloud in points("sigmoid-rotation")), strict=True)
    assert spectra[-1][1] > 2 * spectra[0][1]
    # The main axis, up to its sign, passes through more than a right angle.
    angles = np.unwrap([2 * np.arctan2(*axis[::-1, 1]) for axis in axes]) / 2
    assert abs(angles[-1] - angles[0]) > np.pi / 2


def test_linear_moves_all_by_one_matrix():
    first, last = points("linear-petals")[[0, -1]]
    M = np.linalg.lstsq(first, last)[0]
    np.testing.assert_allclose(first @ M, last, atol=1e-5 * np.abs(last).max())
    assert np.abs(M - np.eye(2)).max() > 0.1


def test_unnormalised_blows_up():
    outcome = run_of("unnormalised-blowup").outcome
    assert not outcome.ok and abs(outcome.time - 0.148) < 5e-4


def test_hardmax_follows_corners():
    cloud = points("hardmax")[0]
    Q = np.asarray(problem("hardmax").field.Q)
    followed = cloud[(cloud @ Q.T @ cloud.T).argmax(axis=1)]
    outer = corners(cloud)
    assert all((token == outer).all(axis=1).any() for token in followed)
    # From V = I and z = exp(-t) x: the first step of length h moves x to x + h y with y the token that it follows.
    step, second = 0.02, points("hardmax")[1]
    steps = round(float(run_of("hardmax").times[1]) / step)
    towards = followed - cloud
    moved = second - cloud
    along = (moved * towards).sum(axis=1) / np.maximum((towards**2).sum(axis=1), 1e-12)
    assert steps == 2 and np.median(along) == pytest.approx(steps * step, rel=0.1)


def test_two_heads_make_four_corners():
    found = mf.clusters(run_of("two-heads").final)
    assert found.count == 4
    spread = [len(mf.clusters(mf.PointCloud(found.centres[:, [k]]), 0.1).centres) for k in (0, 1)]
    assert spread == [2, 2]


def test_the_first_token_under_a_mask_stands_still():
    run = run_of("causal")
    paths = points("causal")[:, int(np.argmin(np.asarray(run.states.positions)[0]))]
    np.testing.assert_allclose(paths, np.broadcast_to(paths[0], paths.shape), atol=1e-5)
    assert mf.clusters(run.final).count < 20


def test_a_deep_transformer_aligns_tokens():
    cosines = [(cloud.sum(axis=0) ** 2).sum() / len(cloud) ** 2 for cloud in points("deep-transformer")]
    assert len(cosines) == 49 and abs(cosines[0]) < 0.05 and cosines[-1] > 0.95


def counts(name: str, *times: float) -> list[int]:
    """The number of clusters at the first frames after these times, which are equally spaced in log t."""
    run = run_of(name)
    steps = np.diff(np.log(np.asarray(run.times)[1:]))
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(points(name), axis=2), 1, rtol=1e-8)
    found = mf.clusters_along(run).count
    return [int(found[np.searchsorted(np.asarray(run.times), t)]) for t in times]


def test_clusters_on_the_circle_merge_one_after_the_other():
    assert counts("circle", 4.0, 10.0, 25.0, 36.0, 60.0, 100.0, 299.0) == [5, 5, 5, 4, 4, 3, 3]


def test_clusters_on_the_sphere_rest_and_merge():
    assert counts("sphere", 30.0, 60.0, 90.0, 110.0, 199.0) == [4, 4, 4, 3, 3]


def test_many_tokens_move_as_a_gaussian():
    changes = [("n = 20000", "n = 2000"), ("accuracy = 1e-5\n", ""), ("times = 75", "times = 2")]
    final = problem("many-tokens", *changes).run(progress=False).final
    Q = np.array([[1.0, 0.5]])
    exact = np.linalg.inv(np.eye(2) + 8 * Q.T @ Q)
    np.testing.assert_allclose(final.covariance, exact, atol=0.05)


def fates(name: str) -> mf.Fates:
    return mf.fates(problem(name).field, centred(starts(5)), progress=False)


def test_the_matrices_of_the_five_regimes():
    for regime, heads in regimes().items():
        field = problem(f"gaussian-{regime.replace(' ', '-')}").field
        for ours, theirs in zip((field.Q, field.K, field.V), heads[0], strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("name", "kind", "rank"),
    [
        ("gaussian-to-zero", "CONVERGED", 0),
        ("gaussian-to-a-line", "CONVERGED", 1),
        ("gaussian-two-lines", "CONVERGED", 1),
        ("gaussian-growth", "BLEW_UP", -1),
        ("gaussian-l2-growth", "DIVERGED", -1),
        ("gaussian-sinkhorn-line", "CONVERGED", 1),
    ],
)
def test_the_fates_of_gaussians(name, kind, rank):
    found = fates(name)
    assert set(found.kind) == {kind} and set(found.rank) == {rank}
    if "line" in name and "two" not in name:  # the limit is known, and is that of softmax
        Q = np.asarray(problem(name).field.Q)
        exact = np.stack([kernel_limit(Q, cov) for cov in starts(5)])
        assert relative_errors(found.limit, exact).max() < 1e-3
    if "two" in name:  # the diagonals: as much of one coordinate as of the other, with both signs
        limits = np.asarray(found.limit)
        np.testing.assert_allclose(limits[:, 0, 0], limits[:, 1, 1], rtol=1e-5)
        assert set(np.sign(limits[:, 0, 1])) == {1.0, -1.0}


def test_the_start_decides():
    found = fates("gaussian-both")
    assert set(found.kind) == {"CONVERGED", "BLEW_UP"}
    assert set(np.asarray(found.rank)[np.asarray(found.kind) == "CONVERGED"]) == {1}


def test_two_humps_drive_apart_faster_than_they_widen():
    def humps(density: mf.Density) -> tuple[np.ndarray, np.ndarray]:
        x, mass = np.asarray(density.centres(0)), np.asarray(density.masses)
        sides = [(x < 0.2) * mass, (x >= 0.2) * mass]
        means = np.array([side @ x / side.sum() for side in sides])
        return means, np.array([side @ (x - mean) ** 2 / side.sum() for side, mean in zip(sides, means, strict=True)])

    run = run_of("density-humps")
    (means, variances), (later, narrower) = humps(problem("density-humps").measure), humps(run.final)
    assert (np.abs(later) > 1.5 * np.abs(means)).all()
    assert (narrower / later**2 < 0.7 * variances / means**2).all()


def test_a_density_contracts_as_its_gaussian_does():
    run = run_of("density-contraction")
    for k in (0, 50, 100):
        t = float(run.times[k])
        assert float(run.states[k].covariance[0, 0]) == pytest.approx(1 / (1 + 2 * t), rel=0.02)
