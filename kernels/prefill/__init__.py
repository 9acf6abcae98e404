"""Attention of many query tokens a sequence, over the paged cache or without one."""
