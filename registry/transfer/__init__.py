"""Bringing the content of a remote file into the store, whatever the network does."""
