"""Products with weights of which two of four are zero: each with its meaning in naive.py."""
