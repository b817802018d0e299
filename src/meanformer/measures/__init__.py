"""Measures: the states that attention acts on and flows move."""
