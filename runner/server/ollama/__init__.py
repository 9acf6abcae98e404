"""The native routes, in Ollama's shapes: /api/chat, /api/generate, /api/tags, ..."""
