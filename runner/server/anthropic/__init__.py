"""The surface for clients of Anthropic's Messages API."""
