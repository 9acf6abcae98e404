"""Authentication at registries: credentials, token requests and Ollama's signatures."""
