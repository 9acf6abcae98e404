"""Attention of one query token a sequence over the paged cache."""
