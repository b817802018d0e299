r"""An experiment in words and formulas, from its settings (`run.json`) alone.

The conventions are those of MATH a and b: $A=K^\top Q$ acts on the query, $\tau$ divides the whole exponent.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .formula import escape, formula
from .page import Block, Markup, number_text

# A matrix with more entries than this is told by its shape and norm.
MOST_ENTRIES = 36

NAMES = {
    "softmax": "Softmax attention",
    "l2": "L2 attention",
    "sinkhorn": "Sinkhorn attention",
    "sigmoid": "Sigmoid attention",
    "linear": "Linear attention",
    "unnormalised": "Unnormalised attention",
    "hardmax": "Hardmax attention",
    "multi-head": "Several heads",
    "causal": "Masked (causal) attention",
    "sum": "A sum of fields",
    "scaled": "A scaled field",
    "affine": "An affine field",
    "perceptron": "A perceptron",
    "pre-norm": "Pre-norm",
    "post-norm": "Post-norm",
    "piecewise": "Piecewise constant weights",
}

_WEIGHTS = {  # the exponent or the weight of a pair, with its temperature
    "softmax": r"e^{Qx\cdot Ky%s}",
    "l2": r"e^{-|Qx-Ky|^2%s}",
    "unnormalised": r"e^{Qx\cdot Ky%s}",
    "linear": r"(Qx\cdot Ky)%s",
}
_GRAM = r"W^\top W"
_MATRICES = ("Q", "K", "V", "W", "M", "W1", "W2", "O")


def attention_formula(settings: Mapping[str, Any]) -> str:
    r"""The field $\Gamma_\mu$ of a kind of attention, as TeX for mathtext."""
    kind = settings.get("kind", "")
    tau = settings.get("eps" if kind == "sinkhorn" else "tau", 1.0)
    over = "" if tau in (None, 1, 1.0) else rf"/{number_tex(tau)}"
    left = r"\Gamma_\mu(x)="
    if kind in ("softmax", "l2"):
        weight = _WEIGHTS[kind] % over
        return left + rf"\dfrac{{\int\,Vy\,{weight}\,d\mu(y)}}{{\int\,{weight}\,d\mu(y)}}"
    if kind in _WEIGHTS:
        return left + rf"\int\,Vy\,{_WEIGHTS[kind] % over}\,d\mu(y)"
    if kind == "sinkhorn":
        cost = r"-|Qx-Ky|^2" if settings.get("kernel") == "distance" else r"+Qx\cdot Ky"
        return left + rf"\int\,Vy\,e^{{f(x)+g(y){cost}{over}}}\,d\mu(y)"
    if kind == "sigmoid":
        bias = settings.get("bias") or 0
        sign = "" if not bias else f"{number_tex(bias)}" if bias < 0 else f"+{number_tex(bias)}"
        return left + rf"\int\,Vy\,\sigma(Qx\cdot Ky{over}{sign})\,d\mu(y),\quad\sigma(z)=1/(1+e^{{-z}})"
    others = {
        "hardmax": r"V\cdot\mathrm{mean\ of\ }y\mathrm{\ over\ arg\,max}_{y}\,Qx\cdot Ky",
        "multi-head": r"\sum_{h}\,W_h\,\Gamma^{(h)}_\mu(x)",
        "causal": r"\Gamma'_{\mu_{\leq s}}(x)",
        "sum": r"\sum_{k}\,\Gamma^{(k)}_\mu(x)",
        "scaled": rf"{number_tex(settings.get('factor', 1.0))}\,\Gamma'_\mu(x)",
        "affine": r"Mx+b",
        "perceptron": r"W_2\,\phi(W_1x+b_1)+b_2",
        "pre-norm": r"\Gamma'_{N_{\#}\mu}(N(x))",
        "post-norm": r"N(x+\Gamma'_\mu(x))-x",
        "piecewise": r"\Gamma^{(k)}_\mu(x)\quad\mathrm{for}\ t\ \mathrm{in\ piece}\ k",
    }
    return left + others.get(kind, r"\ldots")


def describe_attention(block: Block, settings: Mapping[str, Any], name: str = "") -> None:
    """The name of the kind, its formula, its matrices, and the same for what is inside it."""
    kind = str(settings.get("kind", "attention"))
    words = {
        "causal": " A query at position $s$ sees the tokens at positions $r\\leq s$ only.",
        "sinkhorn": " The potentials $f,g$ make the kernel bistochastic against $\\mu$.",
        "hardmax": " The limit $\\tau\\to0$ of softmax.",
    }
    block.text(f"{name}{NAMES.get(kind, kind)}.{words.get(kind, '')}")
    block.display(attention_formula(settings))
    matrices = _grouped({key: settings[key] for key in _MATRICES if settings.get(key) is not None})
    if matrices:
        markup = "".join(matrix_markup(names, value) for names, value in matrices)
        block.add(f'<div class="matrices">{markup}</div>')
    inner = [settings[key] for key in ("of", "field") if isinstance(settings.get(key), Mapping)]
    for key, word in (("heads", "Head"), ("terms", "Term"), ("fields", "Piece")):
        for k, part in enumerate(settings.get(key) or ()):
            describe_attention(block, part, f"{word} {k + 1}: ")
    for part in inner:
        describe_attention(block, part, "Inside: ")


def _grouped(matrices: Mapping[str, Any]) -> list[tuple[list[str], Any]]:
    """Matrices with the names that have them: Q = K = V = I. What is drawn at random differs by its name."""
    groups: list[tuple[list[str], Any]] = []
    for name, value in matrices.items():
        same = next((names for names, other in groups if other == value and "random" not in str(value)), None)
        if same is None:
            groups.append(([name], value))
        else:
            same.append(name)
    return groups


def matrix_markup(names: Sequence[str], value: Any) -> Markup:
    """`name = matrix`: small ones in full, larger ones by shape and norm, drawn ones by their law."""
    left = "".join((f"{name[0]}_{name[1:]}" if len(name) > 1 else name) + "=" for name in names)
    tex = _matrix_tex(value)
    if tex:
        return Markup(f'<span class="matrix">{formula(left + tex)}</span>')
    return Markup(f'<span class="matrix">{formula(left)}{_matrix(value, names[0])}</span>')


def _matrix(value: Any, name: str) -> str:
    if isinstance(value, list) and value and isinstance(value[0], Mapping | str):  # the outputs of several heads
        return ", ".join(_matrix(one, name) for one in value)
    rows = _rows(value)
    if rows is not None and len(rows) * len(rows[0]) <= MOST_ENTRIES:
        body = "".join("<tr>" + "".join(f"<td>{number_text(x, 4)}</td>" for x in row) + "</tr>" for row in rows)
        return f"<table>{body}</table>"
    if rows is not None:
        norm = math.sqrt(sum(x * x for row in rows for x in row))
        return f"{len(rows)} × {len(rows[0])} matrix, " + str(formula(rf"\|{name[0]}\|_F={number_tex(norm)}"))
    if isinstance(value, Mapping) and "gram" in value:
        return f"{formula(_factor_tex(_scale(value)) + _GRAM)}, {formula('W=')}{_matrix(value['gram'], 'W')}"
    tex = _matrix_tex(value)
    return str(formula(tex)) if tex else escape(_matrix_words(value))


def _rows(value: Any) -> list[list[float]] | None:
    if isinstance(value, Sequence) and value and all(isinstance(row, Sequence) for row in value):
        rows = [list(row) for row in value]
        if rows[0] and all(isinstance(x, int | float) for row in rows for x in row):
            return [[float(x) for x in row] for row in rows]
    return None


def _matrix_tex(value: Any) -> str:
    """A matrix that has a name."""
    if isinstance(value, str):
        return {"identity": "I", "zero": "0"}.get(value, "")
    if isinstance(value, int | float):
        return _factor_tex(value) + "I"
    if not isinstance(value, Mapping):
        return ""
    factor = _factor_tex(_scale(value))
    if "identity" in value:
        return _factor_tex(_scale(value) * value["identity"]) + "I"
    if "diagonal" in value and len(value["diagonal"]) <= 8:
        return factor + r"\mathrm{diag}(" + r",\,".join(number_tex(x) for x in value["diagonal"]) + ")"
    if "rotation" in value:
        return factor + rf"R({number_tex(value['rotation'])})\quad\mathrm{{(rotation)}}"
    if "of" in value and isinstance(value["of"], str):
        return factor + value["of"]
    return ""


def _scale(value: Mapping[str, Any]) -> float:
    """The factor of a matrix that is written as a table."""
    scale = value.get("scale")
    return 1.0 if scale is None else float(scale)


def _factor_tex(factor: float | int) -> str:
    """A factor in front of a matrix: nothing for 1."""
    return "" if factor == 1 else "-" if factor == -1 else rf"{number_tex(factor)}\,"


def _matrix_words(value: Any) -> str:
    """A matrix that is told by where it comes from, with its factor in front."""
    if not isinstance(value, Mapping):
        return str(value)
    scale = _scale(value)
    factor = "" if scale == 1 else "− " if scale == -1 else f"{number_text(scale)} · "
    if "random" in value:
        shape = value.get("shape")
        words = f"random ({value['random']})" + (f", {shape[0]} × {shape[1]}" if shape else "")
        return factor + words + (f", seed {value['seed']}" if value.get("seed") is not None else "")
    if "file" in value:
        return f"{factor}the matrix in {value['file']}"
    known = {key: inner for key, inner in value.items() if key != "scale" and inner is not None}
    return factor + ", ".join(f"{key} {inner}" for key, inner in known.items())


def measure_words(settings: Mapping[str, Any]) -> str:
    """The initial measure, in a sentence."""
    kind = settings.get("kind", "")
    n, d = settings.get("n"), settings.get("d")
    place = rf" in $\mathbb{{R}}^{{{d}}}$" if d else ""
    tokens = f"${n}$ tokens{place}" if n else f"Tokens{place}"
    low, high = settings.get("low"), settings.get("high")
    words = {
        "cube": f"{tokens}, uniform in the cube"
        + (f" $[{number_tex(low)},{number_tex(high)}]^{{{d or 'd'}}}$" if _is_number(low) and _is_number(high) else ""),
        "ball": f"{tokens}, uniform in the ball" + _of_radius(settings),
        "sphere": f"{tokens}, uniform on the sphere" + _of_radius(settings),
        "normal": f"{tokens}, drawn from a normal law",
        "mixture": f"{tokens}, drawn from a mixture of {len(settings.get('means') or ())} Gaussians",
        "points": f"{tokens}, given one by one",
        "gaussian": rf"A Gaussian $\mathcal{{N}}(m,\Sigma)${place}, moved by its exact closure",
        "density": "A density on a grid of $"
        + r"\times".join(str(c) for c in _listed(settings.get("cells")))
        + "$ cells, moved by finite volumes",
    }.get(kind, f"A measure of kind {kind}")
    extras = [
        text
        for key, text in (
            ("positions", "with positions $s$ from $0$ to $1$"),
            ("centre", "with mean $0$"),
            ("project", "projected to the sphere"),
        )
        if settings.get(key)
    ]
    return ", ".join([words, *extras]) + "."


def _of_radius(settings: Mapping[str, Any]) -> str:
    radius = settings.get("radius")
    return f" of radius ${number_tex(radius)}$" if _is_number(radius) else ""


def flow_words(experiment: Mapping[str, Any]) -> list[str]:
    """Horizon, frame, space, solver: sentences."""
    if experiment.get("layers"):
        layers = experiment["layers"]
        step = layers.get("step")
        words = f"{layers.get('depth', 'Some')} layers" + (f" of step ${number_tex(step)}$" if _is_number(step) else "")
        return [f"{words}: $x_{{k+1}}=x_k+h\\,\\Gamma_{{\\mu_k}}(x_k)$, an explicit scheme for the equation above."]
    flow = experiment.get("flow") or {}
    t0, t1 = flow.get("t0") or 0.0, flow.get("t1")
    sentences = []
    if t1 is not None:
        end = r"\infty" if str(t1) in ("inf", "Infinity") else number_tex(t1)
        sentences.append(
            f"From $t={number_tex(t0)}$ " + (r"to its fate ($t_1=\infty$)." if end == r"\infty" else f"to $t={end}$.")
        )
    if flow.get("frame") == "rescaled":
        sentences.append("Pictured in the rescaled frame $z=e^{-tV}x$.")
    space = flow.get("space")
    if space:
        radius = space.get("sphere") if isinstance(space, Mapping) else None
        sentences.append(
            "On the sphere" + (f" of radius ${number_tex(radius)}$" if _is_number(radius) else "") + ": velocities are "
            "projected to its tangent planes."
        )
    solver = [f"solver `{flow['solver']}`"] if flow.get("solver") else []
    solver += [
        f"{key} ${number_tex(flow[key])}$" for key in ("step", "rtol", "atol", "accuracy") if _is_number(flow.get(key))
    ]
    if solver:
        text = ", ".join(solver)
        sentences.append(text[0].upper() + text[1:] + ".")
    return sentences


def number_tex(value: Any, digits: int = 4) -> str:
    """A number as TeX: 0.137, 2.5 x 10^6."""
    if not _is_number(value):
        return str(value)
    value = float(value)
    if not math.isfinite(value):
        return "?" if math.isnan(value) else r"\infty" if value > 0 else r"-\infty"
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text
    leading, power = text.split("e")
    return (rf"{leading}\times" if leading != "1" else "") + f"10^{{{int(power)}}}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]
