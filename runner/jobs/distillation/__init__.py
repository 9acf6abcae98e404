"""A small model that learns to predict what a larger one does."""
