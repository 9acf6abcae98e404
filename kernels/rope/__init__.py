"""Rotary position embeddings: their tables, and their use fused with the write to the cache."""

from kernels.rope.tables import rope_tables

__all__ = ["rope_tables"]
