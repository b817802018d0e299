"""The tables of an experiment file: what they may say, and the objects that they mean."""
