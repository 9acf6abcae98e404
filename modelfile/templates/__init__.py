"""Chat templates: from messages to the text that a model was trained on. One module a dialect."""
