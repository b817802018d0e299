"""The page's own mathematics and its link, in the browser that runs them, against numpy."""

import numpy as np
import pytest
from browser import small, visit


@pytest.fixture(scope="module")
def script(browser, server):
    """Calls `body` with a module of the page as `m` and `given`: the value that it returns."""
    with visit(browser, server) as opened:
        view = opened(f"{server.home}static/icon.svg")  # the same origin, and no view that computes

        def call(module: str, body: str, given=None):
            return view.ask(
                f"async (given) => {{ const m = await import('{server.entered.place}static/js/{module}.js'); {body} }}",
                given,
            )

        yield call
        view.watch.forgive("favicon.ico")  # that the browser looks for beside a picture


def matrices() -> list[np.ndarray]:
    """Random ones of each size, and the hard cases: turns, double and defective eigenvalues, zeros, far scales."""
    rng = np.random.default_rng(0)
    found = [rng.normal(size=(d, d)).round(6) for d in range(1, 9) for _ in range(4)]
    found += [np.zeros((3, 3)), np.eye(4), np.array([[0.0, -1], [1, 0]]), np.array([[1.0, 1], [0, 1]])]
    found += [np.diag([1e-6, 1.0, 1e6]), np.array([[2.0, 1, 0], [0, 2, 1], [0, 0, 2]])]
    found += [np.kron(np.eye(2), [[0.0, 2], [-2, 0]]), np.eye(8)[::-1].copy()]
    return found


def test_eigenvalues(script):
    cases = matrices()
    for matrix, found in zip(cases, script("linalg", "return given.map(m.eigenvalues);", _lists(cases)), strict=True):
        values = np.array([complex(*z) for z in found])
        exact = np.linalg.eigvals(matrix)
        scale = max(np.abs(matrix).max(), 1e-300)
        # A defective eigenvalue of multiplicity k is only known to the k-th root of the rounding.
        defect = np.linalg.cond(np.linalg.eig(matrix)[1]) > 1e8
        far = [np.abs(values - z).min() for z in exact] + [np.abs(exact - z).min() for z in values]
        assert max(far) / scale < (1e-4 if defect else 1e-10), matrix
        assert values.sum() == pytest.approx(np.trace(matrix), abs=1e-9 * scale)


def test_a_matrix_with_given_eigenvalues(script):
    """On the eigenvectors that it has: the same values give the same matrix, others are those that were asked for."""
    cases = [m for m in matrices() if np.linalg.cond(np.linalg.eig(m)[1]) < 1e6]
    same = script(
        "linalg", "return given.map((M) => m.withEigenvalues(m.eigenvalues(M), m.eigenbasis(M)));", _lists(cases)
    )
    for matrix, found in zip(cases, same, strict=True):
        np.testing.assert_allclose(found, matrix, atol=1e-8 * max(1, np.abs(matrix).max()))
    values = [[2, 0], [0.5, 3], [0.5, -3]]
    made = script("linalg", "return m.withEigenvalues(given, m.identity(3));", values)
    np.testing.assert_allclose(np.sort_complex(np.linalg.eigvals(made)), [0.5 - 3j, 0.5 + 3j, 2], atol=1e-12)


def test_inverse_rank_and_inertia(script):
    cases = [*matrices(), np.ones((3, 3)), np.array([[1.0, 2], [2, 4]]), np.arange(6.0).reshape(2, 3)]
    ranks = script("linalg", "return given.map((M) => m.rank(M));", _lists(cases))
    assert ranks == [int(np.linalg.matrix_rank(m, tol=1e-9 * max(1, np.abs(m).max()))) for m in cases]
    good = [m for m in cases if m.shape[0] == m.shape[1] and np.linalg.cond(m) < 1e6]
    for matrix, found in zip(good, script("linalg", "return given.map(m.inverse);", _lists(good)), strict=True):
        np.testing.assert_allclose(np.array(found) @ matrix, np.eye(len(matrix)), atol=1e-8)
    rng = np.random.default_rng(1)
    signs = [[1, 1, -1], [0, 0, 0], [1, 0, -2], [-1, -1, -1, 5]]
    turned = []
    for values in signs:
        q, _ = np.linalg.qr(rng.normal(size=(len(values),) * 2))
        turned.append(q @ np.diag(values).astype(float) @ q.T)
    for values, found in zip(
        signs, script("linalg", "return given.map((S) => m.inertia(S));", _lists(turned)), strict=True
    ):
        counts = {
            "positive": sum(v > 0 for v in values),
            "zero": values.count(0),
            "negative": sum(v < 0 for v in values),
        }
        assert found == counts


def test_hulls(script):
    from scipy.spatial import ConvexHull

    rng = np.random.default_rng(2)
    body = "return m.hullOf(given.map(([x]) => x), given.map(([, y]) => y));"
    for n in (3, 10, 1000):
        cloud = rng.normal(size=(n, 2))
        found = np.array(script("hull", body, cloud.tolist()))
        assert {tuple(point) for point in found} == {tuple(point) for point in cloud[ConvexHull(cloud).vertices]}
        x, y = found.T
        assert (x * np.roll(y, -1) - np.roll(x, -1) * y).sum() > 0  # counter-clockwise
    # A square with points on its sides and in its middle, twice each; a point that is none is left out.
    grid = [[x, y] for x in (0, 1, 2) for y in (0, 1, 2)] * 2
    assert sorted(script("hull", body, [*grid, [float("nan"), 9]])) == [[0, 0], [0, 2], [2, 0], [2, 2]]


def test_a_state_survives_its_link(script):
    state = script("state", "return m.defaultState();")
    state["tokens"]["experiment"] = small(title="Ελλάς “é” 💧", seed=2**31)
    state["view"] = "sides"
    text = script("state", "return m.encode(given);", state)
    assert not set(text) & set("+/=#&? ")
    assert script("state", "return m.decode(given);", text) == state


@pytest.mark.parametrize(
    "given, words",
    [
        ("!", "cannot be read"),
        ("bnVsbA", "no state"),  # null
        ("eyJ2aWV3IjoibW9vbiJ9", "no view"),  # {"view":"moon"}
        ("eyJ0b2tlbnMiOjN9", "no experiment"),  # {"tokens":3}
    ],
)
def test_damaged_links_are_refused_in_words(script, given, words):
    said = script("state", "try { m.decode(given); return null; } catch (error) { return error.message; }", given)
    assert "damaged" in said
    assert words in said


@pytest.mark.parametrize(
    "text, value",
    [
        ("1.5", 1.5), (" -2 ", -2), ("−3", -3), ("1e-3", 0.001), ("1/4", 0.25), ("-1/3", -1 / 3), (".5", 0.5),
        ("2.", 2), ("", None), ("abc", None), ("1/0", None), ("0/0", None), ("1e999", None), ("1,5", None),
        ("0x10", None), ("1/2/3", None), ("Infinity", None), ("NaN", None), ("1 2", None),
    ],
)  # fmt: skip
def test_numbers_as_they_are_typed(script, text, value):
    assert script("controls", "return m.parseNumber(given);", text) == value


def _lists(arrays: list[np.ndarray]) -> list:
    return [array.tolist() for array in arrays]


def test_no_text_is_a_formula_in_a_spreadsheet(script):
    """Texts get an apostrophe where they would be formulas; numbers stay numbers, also negative ones."""
    formulas = ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "＝1+1"]
    cells = script("exports", "return given.map(m.cell);", formulas)
    assert all(cell.lstrip('"').startswith("'") for cell in cells), cells
    plain = script("exports", "return given.map(m.cell);", ["softmax", "a=b", 'say "x"', "a,b", "", None, -1.5, 2e-300])
    assert plain == ["softmax", "a=b", '"say ""x"""', '"a,b"', "", "", "-1.5", "2e-300"]
    assert script("exports", "return [-Infinity, Infinity, NaN].map(m.cell);") == ["-inf", "inf", ""]
