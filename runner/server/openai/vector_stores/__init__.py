"""Stores of texts that are found by their meaning."""
