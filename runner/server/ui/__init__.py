"""Pages that the daemon serves, without anything from elsewhere."""
