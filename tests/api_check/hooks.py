"""For schemathesis: what it sends reaches models instead of ending at names that nobody has.

It runs in an environment of its own, without hearth.
"""

from __future__ import annotations

from typing import Any

import schemathesis

MODEL = "echo:latest"
MAX_TOKENS = 16
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
# Their schemas say "any": nearly all that is generated is refused before a model is asked.
_OPEN = ("keep_alive", "options", "response_format", "structured_outputs", "json_schema",
         "grammar", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "format",
         "tool_choice", "chat_template", "chat_template_kwargs",
         "audio", "modalities", "conversation", "context_management", "images",
         "top_logprobs", "best_of", "template", "context", "samplers", "no_repeat_ngram_size",
         "min_tokens", "stop_token_ids", "bad_words", "allowed_token_ids", "mcp_servers",
         "thinking_budget", "container")  # fmt: skip
_BUNDLED = "ember:latest"  # an echo model has no perplexity


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Name the installed model where one is named, keep answers short, and leave out in half of
    the bodies what is mostly refused."""
    path = context.operation.path
    if not isinstance(body, dict) or path == "/api/delete":
        return body
    if len(body) % 2:
        body = {name: value for name, value in body.items() if name not in _OPEN}
    if isinstance(body.get("model"), str):
        body["model"] = _BUNDLED if path == "/api/eval" else MODEL
    for name in _LIMITS:
        if isinstance(body.get(name), int) and not isinstance(body[name], bool):
            body[name] = min(body[name], MAX_TOKENS)
    return body
