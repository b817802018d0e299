"""Every Python block of the README and the docs runs, and prints what the page says that it prints."""

import contextlib
import io
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES.remove(ROOT / "docs" / "math.md")  # formulas only
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str | None]]:
    """The Python blocks of a page, each with the text block that follows it, if any."""
    found = FENCE.findall(page.read_text())
    following = [*found[1:], ("", "")]
    return [
        (code, text if after == "text" else None)
        for (language, code), (after, text) in zip(found, following, strict=True)
        if language == "python"
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    assert blocks(page)
    for code, text in blocks(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(page), "exec"), names)
        if text is not None:
            assert printed.getvalue() == text
    plt.close("all")


# The worked numbers of the specification: at 1, -0.5, 2, 0.25, and masked at the second token.
WORKED = {
    "softmax": (1.3453159203, 0.0679486331, 1.6685056736, 0.7405280048, -0.2187160472),
    "L2": (0.6676589231, -0.3927002055, 1.3912156754, -0.1007920411, -0.3941955373),
    "sigmoid": (0.5120080191, 0.1364256230, 0.6073049806, 0.3553088962, -0.0573979775),
    "linear": (1.2078, -0.6039, 2.4156, 0.30195, -0.1287),
    "unnormalised": (3.4277699454, 0.0595420637, 19.1965039463, 0.8611930291, -0.1644407086),
    "Sinkhorn, dot": (0.8218999838, -0.2001147495, 1.4355912600, 0.1987581040, -0.2276242264),
    "Sinkhorn, distance": (0.9856579581, -0.3614313710, 1.5952803130, 0.0750304859, -0.3479307569),
    "hardmax": (1.8, -0.45, 1.8, 1.8, -0.45),
}


def test_the_table_of_the_first_page_is_the_one_worked_by_hand():
    (table,) = (text for _, text in blocks(ROOT / "docs" / "start.md") if text and text.startswith("kind "))
    rows = {line[:20].strip(): np.array(line[20:].split(), float) for line in table.splitlines()[1:]}
    assert rows.keys() == WORKED.keys()
    for name, values in WORKED.items():
        np.testing.assert_allclose(rows[name], values, rtol=0, atol=0.51e-8, err_msg=name)


def test_the_hand_calculation_of_the_first_page():
    """Its numbers, from the definition, without the library."""
    x, w, A, V = np.array([1.0, -0.5, 2.0]), np.array([0.2, 0.5, 0.3]), 0.8 * 1.1, 0.9
    mass = w * np.exp(A * x[0] * x)
    share = mass / mass.sum()
    page = (ROOT / "docs" / "start.md").read_text()
    for value in (*mass, mass.sum(), *share, *(share * x), (share * x).sum(), V * (share * x).sum()):
        assert f"{value:.5f}" in page


def test_readme_has_its_picture_and_two_set_up_commands():
    readme = (ROOT / "README.md").read_text()
    picture = ROOT / "docs" / "img" / "tour.png"
    assert f"({picture.relative_to(ROOT)})" in readme
    assert 50_000 < picture.stat().st_size < 600_000
    assert re.findall(r"^make (\w+)", readme, re.MULTILINE) == ["demo", "test"]
    for link in re.findall(r"\]\(([^)#]+)\)", readme):
        assert link.startswith("https://") or (ROOT / link).exists(), link
