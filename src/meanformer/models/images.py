"""Pictures as the numbers that a network takes."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .. import _checks as checks
from .config import Config
from .files import need, reason

MODES = {1: "L", 3: "RGB"}
# Numbers of the filters that scale a picture, in Pillow and in files of settings.
FILTERS = (2, 0, 1, 3, 4, 5)
# Formats that are read here, without the help of other programs; Pillow knows more, and hands some on to them.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
# A picture is scaled to some hundred pixels: larger ones would only fill the memory.
MOST_PIXELS, MOST_BYTES = 10**8, 2**28


def pixels_of(image: Any, channels: int, size: tuple[int, int], settings: Config) -> np.ndarray:
    """A picture, shape `(channels, height, width)`: scaled to `size`, its colours centred, as the `settings` say."""
    if channels not in MODES:
        checks.refuse(
            "this model does not take pictures",
            got=f"a model of {channels} channels",
            expected="one channel of grey, or three of colours",
            remedy="model.record(pixels=...) takes any channels",
        )
    for name in ("do_center_crop", "do_pad"):
        settings.only(name, (False,), "preprocessing that crops or pads images")
    settings.only("resample", FILTERS, "this filter for scaling images")
    picture = open_image(image, MODES[channels])
    if settings.flag("do_resize", True):
        _check_size(settings, size)
        picture = picture.resize(size[::-1], resample=settings.get("resample", FILTERS[0]))
    colours = np.asarray(picture, np.float64).reshape(*picture.size[::-1], channels)
    if settings.flag("do_rescale", True):
        colours = colours * settings.number("rescale_factor", 1 / 255, positive=True)
    if settings.flag("do_normalize", True):
        middle = [0.5] * channels
        mean, std = settings.numbers("image_mean", middle), settings.numbers("image_std", middle, positive=True)
        colours = (colours - np.asarray(mean)) / np.asarray(std)
    return colours.transpose(2, 0, 1)


def _check_size(settings: Config, size: tuple[int, int]) -> None:
    said = settings.get("size", list(size))
    said = [said.get("height"), said.get("width")] if isinstance(said, dict) else said
    said = [said, said] if isinstance(said, int) else said
    if said != list(size):
        checks.refuse(
            "images are not scaled to the size of the model",
            got=f"size = {settings.get('size')} in {settings.file}",
            expected=f"height {size[0]} and width {size[1]}, as in config.json",
            remedy="correct the file; or scale the image yourself, and give model.record(pixels=...)",
        )


def open_image(image: Any, mode: str = "RGB") -> Any:
    """A picture from a file, or from an array of shape `(height, width)` or `(height, width, 3)`, 0 to 255.

    What is transparent is shown in its colour; of a film the first picture is taken.
    """
    pillow = need("PIL.Image", "an image")
    if not isinstance(image, (str, Path)):
        return pillow.fromarray(_bytes(image)).convert(mode)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about large pictures; huge ones are errors
            _check_file(Path(image))
            with pillow.open(image, formats=FORMATS) as file:
                if file.width * file.height > MOST_PIXELS:
                    raise ValueError(f"{file.width} x {file.height} pixels, at most {MOST_PIXELS:,} are read")
                depth, picture = file.mode, file.convert(mode)
    except Exception as error:  # what a broken file leads to depends on its format
        checks.refuse(
            "the image cannot be read",
            got=f"{image}: {reason(error).replace(str(Path(image).resolve()), str(image))}",
            expected=f"a picture: {', '.join(FORMATS)}",
            remedy="check the path and the format, or give the array of its pixels",
        )
    if depth.startswith(("I", "F")):
        checks.refuse(
            "the image has more than 8 bits for each colour",
            got=f"{image}, of Pillow's mode {depth}",
            expected="values 0 to 255",
            remedy="scale its values to 0 to 255 first, and give the array",
        )
    return picture


def _check_file(path: Path) -> None:
    if path.exists() and not (path.is_file() or path.is_dir()):  # it would be waited for, or have no end
        raise ValueError("a pipe or a device")
    if path.is_file() and path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path.stat().st_size:,} bytes, at most {MOST_BYTES:,} are read")


def _bytes(image: Any) -> np.ndarray:
    array = np.asarray(image)
    array = array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array
    if array.ndim not in (2, 3) or array.shape[2:] not in ((), (3,), (4,)) or 0 in array.shape:
        checks.refuse(
            "an image is an array of pixels",
            got=f"shape {array.shape}",
            expected="(height, width), or (height, width, 3), values 0 to 255",
            remedy="pass the path of a picture, or such an array",
        )
    numbers = array.dtype.kind in "iuf"
    low, high = (float(array.min()), float(array.max())) if numbers else (0.0, 0.0)
    small = array.dtype.kind == "f" and 0 < high <= 1  # from 0 to 1, as some libraries have it
    if not numbers or not (low >= 0 and high <= 255) or small:
        checks.refuse(
            "the values of an image go from 0 to 255",
            got=f"values from {low:g} to {high:g}" if numbers else f"an array of {array.dtype}",
            expected="numbers from 0, black, to 255",
            remedy="multiply values between 0 and 1 by 255",
        )
    return np.rint(array).astype(np.uint8)
