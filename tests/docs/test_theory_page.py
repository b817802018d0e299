"""The tables of the theory: every test that they name exists, and so does every function; none of ours is left out."""

import ast
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import meanformer as mf
from docs.pages import DOCS, ROOT, prose

PAGE, MATH = DOCS / "theory.md", DOCS / "math.md"
STATED, TESTED = ["", "statement", "holds for", "number"], ["", "source", "tested by"]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
NAME = re.compile(r"\bmf\.(\w+)")
# Public functions of these parts are statements about measures and flows, or numbers that such statements are about.
PARTS = ("meanformer.diagnostics.", "meanformer.gaussian.", "meanformer.metrics.", "meanformer.theory.")


def tables(text: str) -> list[list[list[str]]]:
    """All tables of a page, as cells; the first line is the head, the rule below it is left out."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    found = [
        [[cell.strip() for cell in line.strip("|").split(" | ")] for line in block.splitlines()] for block in blocks
    ]
    return [[head, *lines] for head, _, *lines in found]


def rows(text: str) -> list[dict[str, str]]:
    """The statements, each with its source and tests, which stand in another table under the same number."""
    stated, tested = (
        [line for head, *lines in tables(text) if head == own for line in lines] for own in (STATED, TESTED)
    )
    numbers = [str(n + 1) for n in range(len(stated))]
    assert [line[0] for line in stated] == [f'<a id="statement-{n}"></a>{n}' for n in numbers]  # where links go
    assert [line[0] for line in tested] == numbers
    return [
        dict(zip([*STATED, *TESTED[1:]], [number, *one[1:], *other[1:]], strict=True))
        for number, one, other in zip(numbers, stated, tested, strict=True)
    ]


@cache
def named_in(path: str) -> frozenset[str]:
    """The names of the tests of a module."""
    module = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in module.body if isinstance(node, ast.FunctionDef))


def missing_tests(text: str) -> list[str]:
    """The tests that a text names and that do not exist."""
    named = TEST.findall(text)
    return [f"{path}::{name}" for path, name in named if not (ROOT / path).is_file() or name not in named_in(path)]


def public_functions() -> set[str]:
    """Functions, not classes, that the parts give to users."""
    modules = {name: module for name, module in mf._EXPORTS.items() if module.startswith(PARTS)}
    found = set()
    for name, module in modules.items():
        source = ROOT / "src" / Path(*module.split(".")).with_suffix(".py")
        functions = {
            node.name
            for node in ast.parse(source.read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef)
        }
        found |= {name} & functions
    return found


ROWS = rows(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[""])
def test_a_statement_is_complete(row):
    assert all(row.values())
    named = TEST.findall(row["tested by"])
    assert 1 <= len(named) <= 3 and TEST.sub("", row["tested by"]) == ", " * (len(named) - 1)
    assert missing_tests(row["tested by"]) == []
    assert NAME.search(row["number"]) or row["number"] in {"`field.affine`", "`field.matrix`"}


def test_a_test_that_does_not_exist_is_found():
    """The checks above can fail."""
    right, *wrong = "test_row_51", "test_row_52"
    texts = [f"`tests/theory/test_meanfield.py::{name}`" for name in (right, *wrong)]
    assert missing_tests(" ".join([*texts, "`tests/no/test_such.py::test_x`"])) == [
        "tests/theory/test_meanfield.py::test_row_52",
        "tests/no/test_such.py::test_x",
    ]
    assert {"support_bound", "wasserstein", "fates", "check"} <= public_functions()
    assert not {"Stability", "NotConvergedWarning"} & public_functions()


def test_every_name_of_the_page_is_public():
    assert set(NAME.findall(PAGE.read_text(encoding="utf-8"))) <= set(mf.__all__)


def test_every_public_function_of_the_theory_is_in_the_tables():
    named = {name for row in ROWS for name in NAME.findall(row["number"])}
    assert public_functions() - named == set()


def test_sources_exist():
    """Sections and rows of the specification, and papers."""
    math = MATH.read_text(encoding="utf-8")
    sections = set(re.findall(r"^###? ([a-m](?:\.\d+)?)\b", math, re.MULTILINE))
    last = math[math.index("\n## i. ") : math.index("\n## j. ")]
    lines = set(re.findall(r"^\| (\d+) \|", last, re.MULTILINE))
    papers = set(
        re.findall(
            r"^\[(\w)\]: https://(?:arxiv\.org/abs|doi\.org)/\S+$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    used = set()
    for row in ROWS:
        for source in row["source"].split(", "):
            if paper := re.fullmatch(r"\[(\w)\]", source):
                used.add(paper[1])
            elif number := re.fullmatch(r"i\.(\d+)", source):
                assert number[1] in lines, source
            else:
                assert re.fullmatch(r"[a-m](\.\d+){0,2}", source) and ".".join(source.split(".")[:2]) in sections, (
                    source
                )
    assert used == papers
    # The tests that are named after a row stand beside it.
    for row in ROWS:
        numbers = {int(n) for n in re.findall(r"\bi\.(\d+)", row["source"])}
        for name in re.findall(r"::test_row_(\d+)", row["tested by"]):
            assert int(name) in numbers, row["statement"]


def plain(formula: str) -> str:
    r"""The formula with $v$ for $\|V\|$, without spaces; norms are written in two ways, tables allow one of them."""
    for old, new in ((r"\|", r"\Vert"), (" ", ""), (r"\,", ""), (r"\VertV\Vert", "v")):
        formula = formula.replace(old, new)
    return formula


def constants_of(text: str) -> dict[str, list[str]]:
    """Kind -> L_x and L_mu, from a table; words that follow a formula are left out."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    names = {"usa": "unnormalised"}
    found = {names.get(cells[0].lower(), cells[0].lower()): cells[1:3] for cells in lines}
    return {
        name: [plain(formulas[0]) if (formulas := re.findall(r"\$(.*?)\$", cell)) else "" for cell in cells]
        for name, cells in found.items()
    }


def specified() -> dict[str, list[str]]:
    """The constants of MATH d.2."""
    math = MATH.read_text(encoding="utf-8")
    return constants_of(math[math.index("### d.2") : math.index("### d.3")])


WITH_CONSTANTS = ("softmax", "l2", "sigmoid", "linear", "unnormalised")


def test_the_lipschitz_constants_are_those_of_the_specification():
    """The table of constants has the formulas of MATH d.2."""
    page, theirs = prose(PAGE), specified()
    ours = constants_of(page[page.index("| kind | $L_x$ on $B_R$") : page.index("### The flow")])
    for kind in (*WITH_CONSTANTS, "sinkhorn"):
        assert all(theirs[kind][: 1 + (kind != "sinkhorn")]) and ours[kind] == theirs[kind], kind


def stated_constants(text: str) -> list[str]:
    """What a text says that L_x and L_mu are."""
    found = [re.findall(rf"\${name}=(.+?)\$", text) for name in ("L_x", r"L_\\mu")]
    assert all(len(formulas) <= 1 for formulas in found)
    return [plain(formulas[0]) if formulas else "" for formulas in found]


@pytest.mark.parametrize("kind", [*WITH_CONSTANTS, "sinkhorn"])
def test_the_pages_of_the_kinds_have_the_same_constants(kind):
    text = prose(DOCS / "attention" / f"{kind}.md")
    assert stated_constants(text) == specified()[kind]
    if kind in WITH_CONSTANTS:
        assert r"a=\|A\|/\tau" in text
    wrong = stated_constants(text.replace("R^2", "R"))
    assert wrong[0] != specified()[kind][0]  # so the comparison can fail


def test_the_docstring_has_the_constants_of_softmax():
    assert stated_constants(mf.lipschitz_constants.__doc__) == specified()["softmax"]


def test_the_radius_grows_alike_on_all_pages():
    """For constant V; for several heads with the sum of their norms."""

    def rates(text: str) -> set[str]:
        found = {plain(rate) for rate in re.findall(r"\$R\(t\)\\le\s*(.+?)R_0\$", text)}
        return {rate.replace(r"\int_0^tv", "tv") for rate in found}

    assert rates(PAGE.read_text(encoding="utf-8")) == rates(MATH.read_text(encoding="utf-8")) == {"e^{tv}"}
    for name in ("index", "softmax", "l2", "sinkhorn", "sigmoid"):
        assert rates(prose(DOCS / "attention" / f"{name}.md")) == {"e^{tv}"}, name
    assert rates(prose(DOCS / "attention" / "multihead.md")) == {r"e^{t\sum_h\VertW_hV_h\Vert}"}
    for name in ("linear", "unnormalised"):
        assert rates(prose(DOCS / "attention" / f"{name}.md")) == set(), name


# What the tables state and no other test tries.


def test_units():
    """Statement 43: with Q and K in the units of Sigma nothing changes; without, softmax changes its time only."""
    rng = np.random.default_rng(43)
    Q, K, V, L = rng.normal(size=(4, 3, 3))
    for kind in (mf.Softmax, mf.L2, mf.Sinkhorn):
        for s in (1e-3, 5.0):

            def speed(unit: float, scale: float, kind=kind) -> np.ndarray:
                gaussian = mf.Gaussian(np.zeros(3), factor=np.sqrt(scale) * L)
                return np.asarray(kind(Q / np.sqrt(unit), K / np.sqrt(unit), V).affine(gaussian)[0])

            G = speed(1.0, 1.0)
            np.testing.assert_allclose(speed(s, s), G, rtol=0, atol=1e-12 * np.abs(G).max())
            # G is s times what it was, so that Sigma(0) -> s Sigma(0) is t -> t / s.
            slower = np.allclose(speed(1.0, s), s * G, rtol=0, atol=1e-12 * s * np.abs(G).max())
            assert slower == (kind is mf.Softmax)


def test_the_leading_variance_of_the_velocity():
    r"""Statement 23, on the line with $\Sigma=1$, $V=1$: at x it is $e^{a^2x^2}(1+a^2x^2)/n$, the delta method for the
    quotient of two sums; its average over x is finite below $a=1/\sqrt2$, and grows without limit above it.
    """
    y, w = np.polynomial.hermite_e.hermegauss(120)
    w = w / w.sum()

    def variance(a, x):
        kernel = np.exp(a * x * y)
        mean = (w * kernel) @ y / (w @ kernel)
        return (w * kernel**2) @ (y - mean) ** 2 / (w @ kernel) ** 2

    for a, x in ((0.3, 1.0), (0.9, 1.5), (0.9, -2.0)):
        np.testing.assert_allclose(variance(a, x), np.exp((a * x) ** 2) * (1 + (a * x) ** 2), rtol=1e-9)

    def average(a, reach):
        """Over |x| <= reach."""
        x = np.linspace(-reach, reach, 400_001)
        values = np.exp((a * x) ** 2 - x**2 / 2) * (1 + (a * x) ** 2) / np.sqrt(2 * np.pi)
        return values.sum() * (x[1] - x[0])

    for a in (0.3, 0.65):
        rest = 1 - 2 * a**2
        exact = rest**-0.5 * (1 + a**2 / rest)  # det(I - 2 M^T M)^{-1/2}, with the second moment of that Gaussian
        np.testing.assert_allclose(average(a, 60.0), exact, rtol=1e-9)
    assert average(0.75, 20.0) < 1e-3 * average(0.75, 40.0)
    # For finite n the velocity is in the hull of the sample: its variance is finite, whatever a is.
    sample = np.random.default_rng(23).normal(size=(200, 8))
    weights = np.exp(3.0 * 5.0 * sample)
    velocity = (weights * sample).sum(axis=1) / weights.sum(axis=1)
    assert (velocity <= sample.max(axis=1) + 1e-12).all() and velocity.var() < 1
