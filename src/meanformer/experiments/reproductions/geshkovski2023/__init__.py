"""Geshkovski, Letrouit, Polyanskiy, Rigollet (2023): clusters in self-attention dynamics."""

from ..base import Paper
from . import attention, hyperplanes, integrator, polytope

BIBTEX = """\
@inproceedings{geshkovski2023,
  title     = {The emergence of clusters in self-attention dynamics},
  author    = {Geshkovski, Borjan and Letrouit, Cyril and Polyanskiy, Yury and Rigollet, Philippe},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2023},
  url       = {https://arxiv.org/abs/2305.05465}
}"""

PAPER = Paper(
    key="geshkovski2023",
    title="The emergence of clusters in self-attention dynamics",
    authors="Borjan Geshkovski, Cyril Letrouit, Yury Polyanskiy, Philippe Rigollet",
    url="https://arxiv.org/abs/2305.05465",
    bibtex=BIBTEX,
    items={item.id: item for item in (polytope.ITEM, hyperplanes.ITEM, attention.ITEM, integrator.ITEM)},
)
