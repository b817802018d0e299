"""Tokens with names: words, patches of an image, rows of a table."""

import dataclasses
from typing import Any

from .. import _checks as checks
from .cloud import PointCloud


@dataclasses.dataclass(frozen=True, eq=False)
class Labelled:
    """A measure whose tokens have names, for legends and for hovering over them.

    **Arguments:** `cloud`, the tokens; `labels`, a name for each; `grid`, rows and columns, if they are the patches of
    an image (a token before the patches may have no place in it).
    """

    cloud: PointCloud
    labels: tuple[str, ...]
    grid: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        labels: Any = tuple(str(label) for label in self.labels)
        if len(labels) != self.cloud.n:
            checks.refuse(
                "each token has one label",
                got=f"{len(labels)} labels for {self.cloud.n} tokens",
                expected=f"{self.cloud.n} labels",
                remedy="give one name per token, or none",
            )
        object.__setattr__(self, "labels", labels)
