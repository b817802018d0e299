"""Mutation check: deliberate mistakes in the library, each of which the suite must catch.

    make mutants                                    all of them; verdicts that still hold are kept (build/mutants.jsonl)
    PYTHONPATH=tests python -m mutations --list
    PYTHONPATH=tests python -m mutations --only mask_strict --fresh

The mistakes are in `mutants/`, a file for each part of the package; how they are written is told in `mutators.py`.
"""
