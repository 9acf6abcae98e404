"""Imports models of other programs on this machine into the store without copying."""
