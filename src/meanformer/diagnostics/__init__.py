"""Diagnostics: what a measure or a run looks like, as numbers."""
