"""Models that other programs keep on this machine, and their way into the store without a copy."""
