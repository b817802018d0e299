"""Attention: what turns a measure into a vector field."""
