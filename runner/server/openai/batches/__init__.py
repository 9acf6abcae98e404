"""Batches: many requests from a file, answered beside live traffic into files."""
