"""Which files of a repository make a model. Sends no requests."""
