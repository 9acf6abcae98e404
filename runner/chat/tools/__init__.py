"""Tool calls in the text of a model: what the tool formats of the families have in common."""
