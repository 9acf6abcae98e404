"""Kernels: one folder per operation; naive.py is its meaning. Imports nobody of ours."""
