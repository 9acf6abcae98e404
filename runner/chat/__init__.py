"""Text in, content, reasoning and tool calls out."""
