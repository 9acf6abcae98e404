"""Choosing tokens from logits: penalties, filters, masks and the draw."""
