"""The jobs of a worker: what the page can ask for."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import meanformer as mf

from .. import _checks as checks
from ..experiments.build import Problem, build
from ..experiments.config import Experiment, experiment_of, from_settings
from ..experiments.toml import parse, written
from ..store.errors import FolderError
from . import protocol
from .checked import check_experiment, check_request, check_seen
from .gaussians import checked_starts, run_gaussians
from .stream import Cancelled, Stream, replay, run_problem
from .worker import NAME

if TYPE_CHECKING:
    from .worker import Desk

NOWHERE = Path("/nonexistent")
"""The folder of the files that an experiment of the page names: it may name none."""


def address(job: dict[str, Any]) -> dict[str, Any]:
    """Whom the answers to a job are for."""
    return {"slot": job["slot"], "run": job["run"]}


def do(job: dict[str, Any], desk: "Desk") -> None:
    """Do a job; what is refused is told in words."""
    to = address(job)

    def wanted() -> bool:
        return job["id"] not in desk.cancelled

    def tell(message: dict[str, Any]) -> None:
        desk.answer(b"t", protocol.to_text({**to, **message}).encode())

    def send(message: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        if not wanted():
            raise Cancelled
        desk.answer(b"b", protocol.pack({**to, **message}, arrays))

    def say(words: str, share: float | None) -> None:
        tell({"say": "doing", "words": words, "share": share})

    try:
        if job["do"] == "run":
            want = tuple(job.get("want") or ())
            experiment = _experiment(job["experiment"])
            check_seen(experiment)
            stream = Stream(send, say, wanted, _end(experiment), experiment.states())
            run_problem(build(experiment, begun=stream.start), stream, want)
        elif job["do"] == "gaussians":
            covs = checked_starts(job.get("starts"))
            field = _problem(_with_gaussian(job["experiment"], covs[0])).field
            run_gaussians(field, covs, send, say, wanted)
        elif job["do"] == "replay":
            replay(mf.load(job["folder"]), send, ("received",))
        elif job["do"] == "toml":
            _problem(job["experiment"])
            tell({"say": "toml", "text": written(job["experiment"])})
        elif job["do"] == "read":
            tell({"say": "read", **read_text(job["text"])})
    except Cancelled:
        tell({"say": "cancelled"})
    except checks.InputError as error:
        tell(protocol.refusal(error, NAME))
    except FolderError as error:
        tell({"say": "refused", "words": str(error), "path": []})


def _experiment(data: Any) -> Experiment:
    """The experiment that the page sent, within the limits."""
    check_request(data)
    experiment = from_settings(data, NAME, NOWHERE)
    check_experiment(experiment)
    return experiment


def _end(experiment: Experiment) -> float:
    """The time at which a run ends, if nothing ends it before."""
    if experiment.layers is None:
        assert experiment.flow is not None
        return float(experiment.flow.t1)
    depth = experiment.layers.depth
    return depth * (experiment.layers.step or 1 / depth)


def _problem(data: Any) -> Problem:
    return build(_experiment(data))


def _with_gaussian(data: Any, cov: np.ndarray) -> Any:
    """An attention on its own, as an experiment with a Gaussian of the plane."""
    if not isinstance(data, dict):
        return data
    kept = {key: data[key] for key in ("attention", "seed") if key in data}
    return kept | {"measure": {"kind": "gaussian", "cov": cov.tolist()}, "flow": {"t1": "inf"}}


def read_text(text: Any) -> dict[str, Any]:
    """An experiment file as the page edits it: its matrices as rows."""
    if not isinstance(text, str):
        checks.refuse(
            "an experiment file is text", got=type(text).__name__, expected="TOML", remedy="open a .toml file"
        )
    # First of all: to check a sweep of a million runs would take long.
    check_request(parse(text.removeprefix("\ufeff"), NAME).data)
    data = experiment_of(text, NAME, NOWHERE).source.data
    experiment = _experiment(data)
    problem = build(experiment)
    plain = {
        key: experiment.settings()[key] for key in data if key not in ("title", "about", "formula", "caption", "cites")
    }
    kept = {key: _as_given(plain[key], data[key]) for key in plain}
    drawn_anew = isinstance(problem.field, list)  # in each layer: no rows can say that
    attention = kept["attention"] if drawn_anew else with_rows(kept["attention"], problem.field)
    if kept["measure"]["kind"] == "gaussian":
        rest = {key: value for key, value in kept["measure"].items() if key != "factor"}
        kept["measure"] = rest | {"cov": np.asarray(problem.measure.covariance).tolist()}
    return {
        "experiment": kept | {"attention": attention},
        "title": experiment.title,
        "about": experiment.about.strip(),
    }


def _as_given(settings: Any, given: Any) -> Any:
    """Settings without the defaults that the file does not mention."""
    return {key: settings[key] for key in given} if isinstance(settings, dict) else settings


def with_rows(attention: dict[str, Any], field: Any) -> dict[str, Any]:
    """A table of attention with each matrix written out, as the field has it."""
    done = dict(attention)
    for name in ("Q", "K", "V"):
        if name in attention and hasattr(field, name):
            done[name] = np.asarray(getattr(field, name)).tolist()
    if "of" in attention:
        done["of"] = with_rows(attention["of"], field.field)
    if "heads" in attention:
        done["heads"] = [with_rows(head, part) for head, part in zip(attention["heads"], field.heads, strict=True)]
    return done
