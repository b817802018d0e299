"""Flows: what moves a measure along the field that it makes."""
