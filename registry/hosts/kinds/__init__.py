"""One module for each kind of host."""
