"""Chat templates: from messages to the prompt format that a model was trained on. One module per
dialect."""
