"""Quantized weights: one module a format, each with its layout, dequantize() and linear()."""
