"""Who we are to a registry: credentials, token requests and Ollama's signatures."""
