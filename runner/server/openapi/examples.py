"""One body for each route that is asked often, with the bundled model. Tests send them all."""

from __future__ import annotations

from typing import Any

_MODEL = "ember"
_MESSAGES = [{"role": "user", "content": "What is 2 + 3?"}]
_TEXTS = ["a cat", "a small cat"]

EXAMPLES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": _MODEL, "messages": _MESSAGES, "max_tokens": 32},
    "/v1/completions": {"model": _MODEL, "prompt": "Once upon a time", "max_tokens": 32},
    "/v1/responses": {"model": _MODEL, "input": "What is 2 + 3?", "max_output_tokens": 32},
    "/v1/embeddings": {"model": _MODEL, "input": _TEXTS},
    "/v1/messages": {"model": _MODEL, "messages": _MESSAGES, "max_tokens": 32},
    "/v1/messages/count_tokens": {"model": _MODEL, "messages": _MESSAGES},
    "/v1/rerank": {"model": _MODEL, "query": "a cat", "documents": _TEXTS, "top_n": 1},
    "/v1/score": {"model": _MODEL, "text_1": "a cat", "text_2": _TEXTS},
    "/api/chat": {"model": _MODEL, "messages": _MESSAGES, "stream": False},
    "/api/generate": {"model": _MODEL, "prompt": "Once upon a time", "stream": False},
    "/api/embed": {"model": _MODEL, "input": _TEXTS},
    "/api/embeddings": {"model": _MODEL, "prompt": "a cat"},
    "/api/show": {"model": _MODEL},
    "/apply-template": {"model": _MODEL, "messages": _MESSAGES},
    "/tokenize": {"model": _MODEL, "prompt": "Once upon a time"},
    "/detokenize": {"model": _MODEL, "tokens": [72, 105]},
}
