"""Pages that the daemon serves; each is one file without anything from elsewhere."""
