"""The settings of a model, from its config.json: each is honoured, or refused."""

import json
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn

from .. import _checks as checks
from .files import read_table
from .layers import ACTIVATIONS

REMEDY = "build its fields by hand from its tensors (docs: Real weights)"
# No network is deeper; shared weights are no reason to believe a billion.
MOST_LAYERS = 10_000
# Nor a head wider.
MOST_OF_A_HEAD = 10**6

MISSING = {
    "t5": "relative position biases and cross attention",
    "bart": "cross attention",
    "deberta": "disentangled attention",
    "deberta-v2": "disentangled attention",
    "bloom": "biases of logits that grow with the distance (ALiBi)",
    "gptj": "a perceptron beside attention",
    "gpt_neox": "a perceptron beside attention",
    "phi": "a perceptron beside attention",
    "falcon": "a perceptron beside attention",
    "gemma": "scales that are counted from one",
    "gemma2": "caps on logits",
    "mixtral": "mixtures of experts",
    "qwen2_moe": "mixtures of experts",
    "qwen3": "normalised queries and keys",
    "swin": "shifted windows",
    "clip": "two towers",
    "mpnet": "relative position biases",
    "electra": "a reader: its layers are those of BERT",
    "mamba": "attention",
}
"""What is missing for architectures that are often asked for."""


class Config:
    """The settings in a `file` of a model. What is missing takes its `default`; without one it is refused."""

    def __init__(self, settings: dict[str, Any], file: str = "config.json"):
        self.settings, self.file = settings, file

    def get(self, name: str, default: Any = None) -> Any:
        """A setting as it stands."""
        value = self.settings.get(name)
        if value is None and default is None:
            checks.refuse(
                f"{self.file} lacks a setting",
                got=f"no {name}, among {', '.join(self.settings) or 'none'}",
                expected="the settings of the architecture",
                remedy=f"take the {self.file} that came with the weights",
            )
        return default if value is None else value

    def has(self, name: str) -> bool:
        """Whether a setting is there, and not null."""
        return self.settings.get(name) is not None

    def whole(self, name: str, default: int | None = None, *, least: int = 1, most: int | None = None) -> int:
        """A whole number."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least or (most and value > most):
            self._wrong(name, value, f"a whole number, {least} or more" + (f", at most {most}" if most else ""))
        return value

    def number(self, name: str, default: float | None = None, *, positive: bool = False) -> float:
        """A finite number that is not negative."""
        value = self.get(name, default)
        if not _is_number(value) or value < 0 or (positive and value == 0):
            self._wrong(name, value, "a number above zero" if positive else "a number, zero or more")
        return float(value)

    def numbers(self, name: str, default: list[float], *, positive: bool = False) -> list[float]:
        """As many finite numbers as there are in the default."""
        value = self.get(name, default)
        listed = isinstance(value, list) and len(value) == len(default)
        if not listed or not all(_is_number(x) and (x > 0 or not positive) for x in value):
            self._wrong(name, value, f"a list of {len(default)} numbers" + (" above zero" if positive else ""))
        return [float(x) for x in value]

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.get(name, default)
        return value if isinstance(value, bool) else self._wrong(name, value, "true or false")

    def table(self, name: str) -> "Config":
        """Settings inside a setting; none if it is not there."""
        value = self.get(name, {})
        return Config(value, self.file) if isinstance(value, dict) else self._wrong(name, value, "a table")

    def pair(self, name: str) -> tuple[int, int]:
        """Height and width; one number is both."""
        value = self.get(name)
        sides = value if isinstance(value, list) else [value, value]
        if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
            self._wrong(name, value, "a positive whole number, or two")
        return sides[0], sides[1]

    def only(self, name: str, allowed: Sequence[Any], why: str) -> None:
        """Refuse a setting that the reader cannot honour; the first one is the default."""
        value = self.get(name, allowed[0])
        if value not in allowed:
            checks.refuse(
                f"{why} is not supported",
                got=f"{name} = {_json(value)}",
                expected=f"{name} = " + " or ".join(map(_json, allowed)),
                remedy="use another model, or build its fields by hand (docs: Real weights)",
            )

    def activation(self, name: str) -> Callable[[Any], Any]:
        """The function between the two matrices of the perceptron."""
        return ACTIVATIONS[checks.one_of(str(self.get(name)), "this activation of the perceptron", ACTIVATIONS)]

    def layers(self, name: str) -> int:
        """The number of layers."""
        return self.whole(name, most=MOST_LAYERS)

    def quotient(self, name: str, by: str) -> int:
        """One whole number by another, if it divides it."""
        whole, part = self.whole(name), self.whole(by)
        if whole % part:
            checks.refuse(
                f"{self.file} has numbers that do not divide each other",
                got=f"{name} = {whole}, {by} = {part}",
                expected=f"a multiple of {by} as {name}",
                remedy="take the numbers of the network that was trained",
            )
        return whole // part

    def _wrong(self, name: str, value: Any, expected: str) -> NoReturn:
        checks.refuse(
            f"{self.file} has a setting of the wrong kind",
            got=f"{name} = {_json(value)}",
            expected=expected,
            remedy=f"restore the {self.file} that came with the weights",
        )


def read_config(folder: Path, known: Collection[str]) -> Config:
    """config.json, if it is of a kind that is `known`; refused if we cannot honour it."""
    settings = read_table(folder, "config.json")
    kind = settings.get("model_type")
    if settings.get("auto_map"):
        checks.refuse(
            "this model brings its own code, which is never run",
            got=f"auto_map in config.json, model_type {kind!r}",
            expected=f"one of {', '.join(known)}, without code",
            remedy=REMEDY,
        )
    if not isinstance(kind, str):
        checks.refuse(
            "config.json names no architecture",
            got=f"model_type = {_json(kind)}",
            expected=f"one of {', '.join(known)}",
            remedy="take the config.json of the model itself, not that of a part, or add its model_type",
        )
    if kind not in known:
        missing = MISSING.get(kind)
        checks.refuse(
            "this architecture is not supported",
            got=f"model_type {kind!r}" + (f": missing here is {missing}" if missing else ""),
            expected=f"one of {', '.join(known)}",
            remedy=REMEDY,
        )
    if settings.get("quantization_config"):
        checks.refuse(
            "a quantised model is not supported",
            got="quantization_config in config.json",
            expected="floating-point weights",
            remedy="take the model from before quantisation",
        )
    settings["preprocessing"] = read_table(folder, "preprocessor_config.json", optional=True)
    return Config(settings)


def _is_number(value: Any) -> bool:
    """A finite number; -2e308 < value < 2e308 for whole ones too, which may be longer than any float."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _json(value: Any) -> str:
    """A setting as it stands in the file."""
    return json.dumps(value, ensure_ascii=False)
