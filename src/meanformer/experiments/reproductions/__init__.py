"""Published results, computed again: one package for each paper."""
