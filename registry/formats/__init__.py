"""File formats of weights: one module or package a format. Pure Python, bounded, no numpy."""
