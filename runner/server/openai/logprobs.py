"""Log-probabilities in OpenAI's two shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.server.openai.answers import PromptLogprobs
from runner.types import PromptToken, TokenLogprob

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
        "top_logprobs": [_alternatives(item) for item in items],
        "text_offset": offsets,
    }


class EchoedText:
    """Finds the tokens of a prompt in its text, in order."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode("utf-8", "replace")
        self._at = 0
        self._begun = 0  # characters of which a byte was passed

    def take(self, piece: bytes) -> int:
        """Where the next token begins, in characters. One that is not in the text, such as a
        token of the beginning, takes no room; nor does a space that the vocabulary puts first."""
        rest = self._bytes[self._at : self._at + 1]
        place = self._begun - (1 if rest and rest[0] & 0xC0 == 0x80 else 0)
        for shown in (piece, piece.removeprefix(b" ")):
            if shown and self._bytes.startswith(shown, self._at):
                self._at += len(shown)
                self._begun += sum(byte & 0xC0 != 0x80 for byte in shown)
                break
        return place


def echoed_logprobs(
    prompt: Sequence[PromptToken], text: EchoedText, items: Sequence[TokenLogprob], offset: int
) -> dict[str, Any]:
    """logprobs of a completion choice that repeats its prompt: tokens of the prompt, then those
    after it; offset: see completion_logprobs."""
    after = completion_logprobs(items, offset)
    before = {
        "tokens": [_text(item.piece) for item in prompt],
        "token_logprobs": [
            None if item.logprob is None else max(item.logprob, FLOOR) for item in prompt
        ],
        "top_logprobs": [_alternatives(item) for item in prompt],
        "text_offset": [text.take(item.piece) for item in prompt],
    }
    return {name: before[name] + after[name] for name in before}


def prompt_logprobs(prompt: Sequence[PromptToken], count: int) -> PromptLogprobs:
    """The field prompt_logprobs as vLLM has it: for each token of the prompt null or, by their
    ids, the count likeliest tokens and itself."""
    return [_by_id(item, count) for item in prompt]


def _by_id(item: PromptToken, count: int) -> dict[str, Any] | None:
    if item.logprob is None:
        return None
    ranked = [(*one, rank) for rank, one in enumerate(item.top, 1)]
    own = next((one for one in ranked if one[0] == item.token), None)
    chosen = own or (item.token, item.piece, item.logprob, None)
    return {
        str(token): {
            "logprob": max(logprob, FLOOR),
            "rank": rank,
            "decoded_token": _text(piece),
        }
        for token, piece, logprob, rank in (chosen, *ranked[:count])
    }


def _alternatives(item: TokenLogprob | PromptToken) -> dict[str, float] | None:
    """The likeliest tokens, best first, and the token itself where it is none of them."""
    if item.logprob is None:
        return None
    found: dict[str, float] = {}
    for _, piece, logprob in (*item.top, (item.token, item.piece, item.logprob)):
        found.setdefault(_text(piece), max(logprob, FLOOR))
    return found


def _token(piece: bytes, logprob: float) -> dict[str, Any]:
    return {"token": _text(piece), "logprob": max(logprob, FLOOR), "bytes": list(piece)}


def _text(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")
