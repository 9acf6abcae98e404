"""Log-probabilities in OpenAI's two shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.types import TokenLogprob

FLOOR = -9999.0  # what OpenAI gives for impossible; JSON has no infinity


def chat_logprobs(items: Sequence[TokenLogprob]) -> dict[str, Any]:
    """logprobs of a chat choice."""
    content = [
        {
            **_token(item.piece, item.logprob),
            "top_logprobs": [_token(piece, logprob) for _, piece, logprob in item.top],
        }
        for item in items
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(items: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
    """logprobs of a completion choice; offset: characters of text before the first token."""
    tokens = [_text(item.piece) for item in items]
    offsets, at = [], offset
    for token in tokens:
        offsets.append(at)
        at += len(token)
    return {
        "tokens": tokens,
        "token_logprobs": [max(item.logprob, FLOOR) for item in items],
        "top_logprobs": [
            {_text(piece): max(logprob, FLOOR) for _, piece, logprob in reversed(item.top)}
            for item in items
        ],
        "text_offset": offsets,
    }


def _token(piece: bytes, logprob: float) -> dict[str, Any]:
    return {"token": _text(piece), "logprob": max(logprob, FLOOR), "bytes": list(piece)}


def _text(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")
