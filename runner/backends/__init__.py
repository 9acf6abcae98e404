"""Backends: what computes. Only worker processes import these modules."""
