"""What notebooks show of our objects: cards of HTML, made from NumPy arrays and text, without a plotting library."""
