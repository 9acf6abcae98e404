"""Mixtures of experts: choosing experts, and the matmuls of tokens grouped by expert."""
