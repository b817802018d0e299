"""A run as a table, made from its dataset."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas
    import xarray


def run_table(data: "xarray.Dataset") -> "pandas.DataFrame":
    """The dataset of a run as a table with a row for each time and token, for each time, or for each time and cell."""
    import pandas  # xarray brings it

    columns = _tokens(data) if "points" in data else _gaussian(data) if "mean" in data else _cells(data)
    frame = pandas.DataFrame(columns)
    frame.attrs = dict(data.attrs)
    return frame


def entries(name: str, values: np.ndarray, symmetric: bool = False) -> dict[str, np.ndarray]:
    """Columns of the entries of vectors, shape `(rows, d)`, or of symmetric matrices, each pair of entries once."""
    if not symmetric:
        return {f"{name}{i + 1}": values[:, i] for i in range(values.shape[1])}
    upper = zip(*np.triu_indices(values.shape[1]), strict=True)
    return {f"{name}{i + 1}_{j + 1}": values[:, i, j] for i, j in upper}


def _tokens(data: "xarray.Dataset") -> dict[str, Any]:
    points, times = data["points"].values, data["time"].values
    count, n, d = points.shape
    columns = {"time": np.repeat(times, n), "token": np.tile(np.arange(n), count)}
    columns |= entries("x", points.reshape(count * n, d)) | {"weight": np.tile(data["weights"].values, count)}
    return columns | ({"position": np.tile(data["positions"].values, count)} if "positions" in data else {})


def _gaussian(data: "xarray.Dataset") -> dict[str, Any]:
    moments = entries("mean", data["mean"].values) | entries("cov", data["covariance"].values, symmetric=True)
    return {"time": data["time"].values, **moments}


def _cells(data: "xarray.Dataset") -> dict[str, Any]:
    masses, density = data["masses"], data["density"]
    axes = [str(name) for name in masses.dims]
    grid = np.meshgrid(*(data[name].values for name in axes), indexing="ij")
    columns = {name: values.ravel() for name, values in zip(axes, grid, strict=True)}
    return {**columns, "mass": masses.values.ravel(), "density": density.values.ravel()}
