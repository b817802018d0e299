"""Measurements of meanformer against what its users would otherwise run."""
