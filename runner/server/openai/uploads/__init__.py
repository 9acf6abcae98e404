"""Files that come in parts."""
