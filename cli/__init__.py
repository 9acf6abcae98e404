"""The hearth command. Reaches the product over HTTP only."""
