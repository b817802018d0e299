"""Reference implementations in plain NumPy, written from the mathematics and independent of the library."""
