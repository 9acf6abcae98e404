"""Conversations as coding agents hold them, turn for turn, after the shapes of their requests."""
