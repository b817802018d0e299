"""Castin, Ablin, Carrillo and Peyré (2025): A unified perspective on the dynamics of deep transformers."""

from ..base import Paper
from . import bounds, closed, cone, density, depth, identity, meanfield, ranks, tokens

PAPER = Paper(
    key="castin2025",
    title="A Unified Perspective on the Dynamics of Deep Transformers",
    authors="Valérie Castin, Pierre Ablin, José Antonio Carrillo and Gabriel Peyré",
    url="https://arxiv.org/abs/2501.18322",
    bibtex="""@article{castin2025,
  title   = {A unified perspective on the dynamics of deep transformers},
  author  = {Castin, Val{\\'e}rie and Ablin, Pierre and Carrillo, Jos{\\'e} Antonio and Peyr{\\'e}, Gabriel},
  journal = {arXiv preprint arXiv:2501.18322},
  year    = {2025},
  url     = {https://arxiv.org/abs/2501.18322}
}""",
    items={
        item.id: item
        for item in (
            identity.ITEM,
            *ranks.ITEMS,
            cone.ITEM,
            *closed.ITEMS,
            meanfield.ITEM,
            *bounds.ITEMS,
            depth.ITEM,
            density.ITEM,
            tokens.ITEM,
        )
    },
)
