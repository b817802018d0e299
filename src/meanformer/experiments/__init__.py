"""Experiments: what `meanformer run` runs."""
