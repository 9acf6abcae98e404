"""Files that clients upload, and those that batches leave."""
