"""Which files of a repository make a model. Asks nobody."""
