"""What to cite, as BibTeX; and what a run used."""

from collections.abc import Iterator, Mapping
from typing import Any

BIBTEX: dict[str, str] = {
    "meanformer": """@software{meanformer,
  title   = {meanformer: the dynamics of deep transformers, as a flow of measures},
  author  = {{The meanformer developers}},
  version = {VERSION},
  year    = {2026},
  license = {Apache-2.0}
}""",
    "castin2025": """@article{castin2025,
  title   = {A unified perspective on the dynamics of deep transformers},
  author  = {Castin, Val{\\'e}rie and Ablin, Pierre and Carrillo, Jos{\\'e} Antonio and Peyr{\\'e}, Gabriel},
  journal = {arXiv preprint arXiv:2501.18322},
  year    = {2025},
  url     = {https://arxiv.org/abs/2501.18322}
}""",
    "castin2024": """@inproceedings{castin2024,
  title     = {How smooth is attention?},
  author    = {Castin, Val{\\'e}rie and Ablin, Pierre and Peyr{\\'e}, Gabriel},
  booktitle = {International Conference on Machine Learning},
  year      = {2024},
  url       = {https://arxiv.org/abs/2312.14820}
}""",
    "geshkovski2023": """@inproceedings{geshkovski2023,
  title     = {The emergence of clusters in self-attention dynamics},
  author    = {Geshkovski, Borjan and Letrouit, Cyril and Polyanskiy, Yury and Rigollet, Philippe},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2023},
  url       = {https://arxiv.org/abs/2305.05465}
}""",
    "geshkovski2024": """@article{geshkovski2024,
  title   = {A mathematical perspective on transformers},
  author  = {Geshkovski, Borjan and Letrouit, Cyril and Polyanskiy, Yury and Rigollet, Philippe},
  journal = {arXiv preprint arXiv:2312.10794},
  year    = {2023},
  url     = {https://arxiv.org/abs/2312.10794}
}""",
    "sinkformers": """@inproceedings{sinkformers,
  title     = {Sinkformers: transformers with doubly stochastic attention},
  author    = {Sander, Michael E. and Ablin, Pierre and Blondel, Mathieu and Peyr{\\'e}, Gabriel},
  booktitle = {International Conference on Artificial Intelligence and Statistics},
  year      = {2022},
  url       = {https://arxiv.org/abs/2110.11773}
}""",
    "kim2021": """@inproceedings{kim2021,
  title     = {The {L}ipschitz constant of self-attention},
  author    = {Kim, Hyunjik and Papamakarios, George and Mnih, Andriy},
  booktitle = {International Conference on Machine Learning},
  year      = {2021},
  url       = {https://arxiv.org/abs/2006.04710}
}""",
    "ramapuram2024": """@article{ramapuram2024,
  title   = {Theory, analysis, and best practices for sigmoid self-attention},
  author  = {Ramapuram, Jason and others},
  journal = {arXiv preprint arXiv:2409.04431},
  year    = {2024},
  url     = {https://arxiv.org/abs/2409.04431}
}""",
    "vaswani2017": """@inproceedings{vaswani2017,
  title     = {Attention is all you need},
  author    = {Vaswani, Ashish and Shazeer, Noam and Parmar, Niki and Uszkoreit, Jakob and Jones, Llion and
               Gomez, Aidan N. and Kaiser, {\\L}ukasz and Polosukhin, Illia},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2017},
  url       = {https://arxiv.org/abs/1706.03762}
}""",
    "bert": """@inproceedings{bert,
  title     = {{BERT}: pre-training of deep bidirectional transformers for language understanding},
  author    = {Devlin, Jacob and Chang, Ming-Wei and Lee, Kenton and Toutanova, Kristina},
  booktitle = {Conference of the North American Chapter of the Association for Computational Linguistics},
  year      = {2019},
  url       = {https://arxiv.org/abs/1810.04805}
}""",
    "albert": """@inproceedings{albert,
  title     = {{ALBERT}: a lite {BERT} for self-supervised learning of language representations},
  author    = {Lan, Zhenzhong and Chen, Mingda and Goodman, Sebastian and Gimpel, Kevin and Sharma, Piyush and
               Soricut, Radu},
  booktitle = {International Conference on Learning Representations},
  year      = {2020},
  url       = {https://arxiv.org/abs/1909.11942}
}""",
    "jax": """@software{jax,
  title  = {{JAX}: composable transformations of {P}ython+{N}um{P}y programs},
  author = {Bradbury, James and Frostig, Roy and Hawkins, Peter and Johnson, Matthew James and Leary, Chris and
            Maclaurin, Dougal and Necula, George and Paszke, Adam and Vander{P}las, Jake and
            Wanderman-{M}ilne, Skye and Zhang, Qiao},
  year   = {2018},
  url    = {https://github.com/jax-ml/jax}
}""",
    "equinox": """@article{equinox,
  title   = {{E}quinox: neural networks in {JAX} via callable {P}y{T}rees and filtered transformations},
  author  = {Kidger, Patrick and Garcia, Cristian},
  journal = {Differentiable Programming workshop at Neural Information Processing Systems},
  year    = {2021},
  url     = {https://arxiv.org/abs/2111.00254}
}""",
    "diffrax": """@phdthesis{diffrax,
  title  = {On neural differential equations},
  author = {Kidger, Patrick},
  school = {University of Oxford},
  year   = {2021},
  url    = {https://arxiv.org/abs/2202.02435}
}""",
    "pot": """@article{pot,
  title   = {{POT}: {P}ython optimal transport},
  author  = {Flamary, R{\\'e}mi and Courty, Nicolas and Gramfort, Alexandre and others},
  journal = {Journal of Machine Learning Research},
  volume  = {22},
  number  = {78},
  pages   = {1--8},
  year    = {2021}
}""",
}

# What the kinds of attention come from.
_OF_KIND = {
    "sinkhorn": "sinkformers",
    "l2": "kim2021",
    "sigmoid": "ramapuram2024",
    "unnormalised": "geshkovski2024",
    "multi-head": "vaswani2017",
    "perceptron": "vaswani2017",
}


def bibtex(key: str, version: str = "") -> str:
    """The entry of a key, a comment that names it if it is not known here; `meanformer` takes the version that was
    used.
    """
    if key not in BIBTEX:
        return f"% no BibTeX known for {' '.join(key.split())}"
    return BIBTEX[key].replace("VERSION", version or "unknown")


def cite(record: Mapping[str, Any]) -> list[str]:
    """The keys of what a run used (`run.json`): the theory first, then the kinds of attention, then the tools.

    Keys that an experiment cites and that are not known here are kept, for others to look up.
    """
    found = ["meanformer", "castin2025", *(record.get("cites") or [])]
    experiment = record.get("experiment") or {}
    found += [_OF_KIND[kind] for kind in kinds(experiment) if kind in _OF_KIND]
    if any(_on_sphere(part) for part in _tables(experiment)):
        found.append("geshkovski2024")
    used = {"jax": "jax", "equinox": "equinox", "diffrax": "diffrax"}
    found += [key for package, key in used.items() if package in (record.get("versions") or {})]
    if any(" W_" in f" {claim}" for claim in (record.get("claims") or [])):
        found.append("pot")
    return list(dict.fromkeys(found))


def kinds(experiment: Mapping[str, Any]) -> list[str]:
    """The kinds of attention in an experiment, in order, each once."""
    found = [part["kind"] for part in _tables(experiment) if isinstance(part.get("kind"), str)]
    return list(dict.fromkeys(found))


def _tables(value: Any) -> Iterator[Mapping[str, Any]]:
    """All tables inside a table, itself included."""
    if isinstance(value, Mapping):
        yield value
        for inner in value.values():
            yield from _tables(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _tables(inner)


def _on_sphere(table: Mapping[str, Any]) -> bool:
    space = table.get("space")
    return space == "sphere" or (isinstance(space, Mapping) and "sphere" in space)
