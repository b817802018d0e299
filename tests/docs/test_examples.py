"""The examples run, write their pictures, and print results that hold; sizes are small here."""

import re
import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from docs.pages import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NUMBER = r"([-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)"

# What the tests give to each example, beside --out.
SMALL = {
    "blow_up": ["--n", "100"],
    "clusters": ["--n", "30", "--film", "4"],
    "custom_attention": ["--n", "40"],
    "gaussian_fates": ["--quick"],
    "masked": ["--n", "16"],
    "mean_field_rate": ["--n", "50", "800", "--repeats", "32"],
    "million_tokens": ["--n", "20000"],
    "real_model": ["--draws", "2"],
    "steer_gaussian": ["--iterations", "20"],
    "three_representations": ["--quick"],
}


def numbers(pattern: str, printed: str) -> list[float]:
    """The numbers at the # of a pattern, which is found once in what was printed."""
    (found,) = re.findall(re.escape(pattern).replace(r"\#", NUMBER), printed)
    return [float(text.replace(",", "")) for text in ([found] if isinstance(found, str) else found)]


def blow_up(printed: str) -> None:
    detected, exact, error = numbers("t* detected #, exact #, relative error #", printed)
    Q, K = np.array([[1.0, 0.3], [0.0, 0.8]]), np.array([[0.9, -0.2], [0.4, 0.7]])
    A = K.T @ Q
    root = np.linalg.cholesky([[0.4, 0.1], [0.1, 0.2]])
    formula = 1 / np.linalg.eigvalsh(root.T @ (A + A.T) @ root).max()
    assert exact == pytest.approx(formula, abs=1e-9) and detected == pytest.approx(formula, rel=1e-6) and error < 1e-6
    _, trace, radius, bound = numbers("# tokens at 1.6 t*: trace #, radius # <= #", printed)
    assert 0.6 < trace < 1e4 and radius <= bound


def clusters(printed: str) -> None:
    (count,) = numbers("# clusters at t = 10", printed)
    assert 3 <= count <= 12 and "\nSeen: " in printed


def custom_attention(printed: str) -> None:
    assert numbers("against two loops: #", printed)[0] < 1e-13
    radius, bound = numbers("at t = 4: radius # <= #", printed)
    assert 0 < radius <= bound
    assert numbers("the first token sees itself: #", printed)[0] < 1e-14
    (thin,), (heavy,) = (
        numbers(f"{kind}: mean distance from the centre of the group #", printed) for kind in ("L2", "Student")
    )
    assert heavy < thin / 2


def gaussian_fates(printed: str) -> None:
    header, row, ranks = (printed.splitlines()[k] for k in (0, 1, 2))
    assert re.split(r"\s{2,}", header.strip()) == ["to zero", "to a line", "two lines", "growth", "both"]
    counts = re.split(r"\s{2,}", row.strip())
    assert counts[:5] == ["softmax", "4 rank 0", "4 rank 1", "4 rank 1", "4 blow-up"]
    assert re.fullmatch(r"\d+ blow-up, \d+ rank 1", counts[5])
    assert ranks == "ranks, d = 3: 20 rank 2; theorem: 2"


def masked(printed: str) -> None:
    assert numbers("the first token moved by #", printed) == [0.0]
    before, after = numbers("largest 1 - x_i . x_1: # at t = 0, # at t = 30", printed)
    assert before > 1 and after < 1e-6
    (rate,) = numbers("decays with rate #; theory 1", printed)
    (third,) = numbers("# times as far as the second; theory 2", printed)
    assert rate == pytest.approx(1, abs=2e-5) and third == pytest.approx(2, abs=0.05)


def mean_field_rate(printed: str) -> None:
    slope, low, high = numbers("slope #, 95 % interval # to #; theory -0.500", printed)
    assert low < -0.5 < high and low < slope < high and high - low < 0.6
    errors = [float(error) for error in re.findall(r"error ([\d.]+),", printed)]
    assert len(errors) == 2 and errors[0] > errors[1]


def million_tokens(printed: str) -> None:
    assert numbers("# tokens, # steps", printed)[0] == 20_000
    first, second, off = numbers("covariance diag(#, #), off it #;", printed)
    found = np.array([[first, off], [off, second]])
    error = np.linalg.norm(found - np.diag([2 / 3, 1 / 9])) / np.hypot(2 / 3, 1 / 9)
    said, scaled = numbers("relative error #, times sqrt(n) #", printed)
    assert said == pytest.approx(error, abs=3e-5) and scaled == pytest.approx(said * 20_000**0.5, rel=0.01)
    assert scaled < 8
    assert numbers("largest error measured #", printed)[0] <= 1e-6


def real_model(printed: str) -> None:
    first, last, null = numbers("average cosine # to #; random weights #", printed)
    assert 0 < first < 0.1 < 0.3 < last < 0.5 and null > first
    first, last, _ = numbers("effective rank # to #; random weights #", printed)
    assert 30 < first < 40 and 12 < last < 22
    better, heads = numbers("the closure beats the mean in # of # heads", printed)
    assert heads == 72 and 36 < better < 72


def steer_gaussian(printed: str) -> None:
    first, last, steps = numbers("loss # at the start, # after # iterations", printed)
    assert last < first / 1e4 and steps == 20
    assert numbers("mean [# #], target [# #]", re.sub(r" +", " ", printed).replace("[ ", "["))[:2] == pytest.approx(
        [-0.2, 1.2], abs=0.02
    )


def three_representations(printed: str) -> None:
    orders = {
        (kind, name): float(order)
        for kind, name, order in re.findall(r"d = 1, (n|cells) .*?: (\w+) .* order ([-\d.]+)", printed)
    }
    for name in ("distance", "mean", "covariance"):
        assert orders["n", name] == pytest.approx(0.5, abs=0.2)
    assert orders["cells", "distance"] == pytest.approx(2, abs=0.2)


def test_every_example_is_here():
    assert [path.stem for path in EXAMPLES] == sorted(SMALL)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs_and_its_results_hold(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = path.stem == "gaussian_fates"
    out = tmp_path / "new" / (path.stem if folder else f"{path.stem}.png")
    monkeypatch.setattr(sys, "argv", [str(path), "--out", str(out), *SMALL[path.stem]])
    runpy.run_path(str(path), run_name="__main__")
    assert plt.get_fignums() == []
    globals()[path.stem](capsys.readouterr().out)
    pictures = sorted(out.glob("*.png")) if folder else [out]
    assert len(pictures) == (5 if folder else 1)
    for picture in pictures:
        with Image.open(picture) as image:
            assert image.width >= 250 and len(image.convert("RGB").getcolors(1 << 24) or []) > 50
    if "--film" in SMALL[path.stem]:
        with Image.open(out.with_suffix(".gif")) as film:
            assert getattr(film, "n_frames", 1) == 4
    assert list(tmp_path.iterdir()) == [tmp_path / "new"], "nothing is written elsewhere"


def test_examples_say_how_they_are_run_and_where_their_picture_goes():
    for path in EXAMPLES:
        code = path.read_text(encoding="utf-8")
        words = code.split('"""')[1]
        assert f"python examples/{path.name}" in words
        (out,) = re.findall(r'"--out", type=Path, default=Path\("([^"]+)"\)', code)
        assert Path(out).parent == Path("runs") and Path(out).stem == path.stem and out in words
