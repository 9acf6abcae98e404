"""The engine: from requests to steps of a backend, and from tokens to text."""
