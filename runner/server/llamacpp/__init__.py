"""Routes that clients of llama-server, vLLM and Jina know: tokenize, rerank, ..."""
