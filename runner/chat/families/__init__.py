"""One module for each model family: its special tokens, tool format and reasoning format."""
