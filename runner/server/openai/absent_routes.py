"""Routes of OpenAI and Anthropic that hearth does not have, each with what to do instead."""

from __future__ import annotations

from typing import Final

_ASK_A_MODEL: Final = "ask a model that judges texts (Llama Guard, ShieldGemma) in a chat"
_NO_IMAGES: Final = "hearth runs language models; use another server for images"
_RESPONSES: Final = "use /v1/responses with /v1/conversations"
_TRAIN: Final = "train elsewhere, and add the adapter to its model with `hearth adapter add`"
_NO_ACCOUNTS: Final = "there are no accounts here; `hearth key` makes and lists keys"
_NOT_STORED: Final = "chat completions are not stored; responses are: use /v1/responses"

ABSENT: Final = {
    "/v1/moderations": _ASK_A_MODEL,
    "/v1/safety": _ASK_A_MODEL,
    "/v1/decisions": _ASK_A_MODEL,
    "/v1/content_provenance_checks": _ASK_A_MODEL,
    "/v1/images": _NO_IMAGES,
    "/v1/videos": "hearth runs language models; use another server for videos",
    "/v1/assistants": _RESPONSES,
    "/v1/threads": _RESPONSES,
    "/v1/chatkit": _RESPONSES,
    "/v1/chat/completions": _NOT_STORED,
    "/v1/realtime": "send texts over the WebSocket at /v1/responses",
    "/v1/live": "send texts over the WebSocket at /v1/responses",
    "/v1/fine_tuning": _TRAIN,
    "/v1/fine-tunes": _TRAIN,
    "/v1/evals": "`hearth eval` measures perplexity; other measures are made by their own programs",
    "/v1/graders": "grade with a program of your own",
    "/v1/containers": "hearth does not run code from models; provide a tool and run it yourself",
    "/v1/skills": "hearth does not run code from models; provide a tool and run it yourself",
    "/v1/organization": _NO_ACCOUNTS,
    "/v1/projects": _NO_ACCOUNTS,
    "/v1/messages/batches": "send the messages one by one, or chats by /v1/batches",
    "/v1/edits": "use /v1/chat/completions",
    "/v1/engines": "use /v1/models",
}


def advice_for(path: str) -> str | None:
    """What to do instead of asking this path, and why; None: OpenAI has none such either."""
    for prefix, advice in ABSENT.items():
        if path == prefix or path.startswith(f"{prefix}/"):
            return advice
    return None
