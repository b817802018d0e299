"""The theory against runs: claims checked one by one, the mean-field limit measured."""
