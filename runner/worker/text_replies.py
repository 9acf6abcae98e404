"""Frames that ask for text or tokens, and their replies: the table at the end.

Called on the prompts' thread. Knows nothing of sockets or of the engine's steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runner.backends.backend import TooManyTokens
from runner.backends.turns import in_turns
from runner.engine.admission import prompt_overflow
from runner.errors import ContextOverflow, InvalidRequest, Unsupported
from runner.types import GenerateRequest
from runner.worker.images import images_of
from runner.worker.json_codec import from_json
from runner.worker.loader import ModelRuntime

Frame = dict[str, Any]
TextReply = Callable[[ModelRuntime, Frame], Frame]
MAX_TOKENS = 1_000_000  # listed or counted; no model reads as many


def text_reply(op: str, runtime: ModelRuntime, frame: Frame) -> Frame:
    """The reply to a frame of TEXT_REPLIES. Raises InvalidRequest, Unsupported, and
    ContextOverflow for a text of more than MAX_TOKENS and for a prompt that does not fit."""
    try:
        return TEXT_REPLIES[op](runtime, frame)
    except TooManyTokens as long:
        raise ContextOverflow(
            f"prompt is too long: it has at least {long.count} tokens, at most {MAX_TOKENS} are "
            "counted; send it in parts",
            prompt_tokens=long.count,
            context_length=MAX_TOKENS,
        ) from None


def _tokenize(runtime: ModelRuntime, frame: Frame) -> Frame:
    text = frame["text"]
    if frame.get("add_special", True):
        return {"tokens": runtime.prompts.encode_text(text, MAX_TOKENS)}
    encode = runtime.model.tokenizer.encode
    special = bool(frame.get("parse_special"))
    tokens = encode(text, add_bos=False, parse_special=special, max_tokens=MAX_TOKENS)
    return {"tokens": tokens}


def _detokenize(runtime: ModelRuntime, frame: Frame) -> Frame:
    pieces = _token_bytes(runtime, frame["tokens"])
    if frame.get("special", False):
        name = runtime.model.tokenizer.text
        pieces = [
            piece or name(token).encode()
            for piece, token in zip(pieces, frame["tokens"], strict=True)
        ]
    return {"text": b"".join(pieces).decode("utf-8", "replace")}


def _pieces(runtime: ModelRuntime, frame: Frame) -> Frame:
    pieces = _token_bytes(runtime, frame["tokens"])
    return {"pieces": [piece.decode("utf-8", "replace") for piece in pieces]}


def _token_bytes(runtime: ModelRuntime, tokens: list[int]) -> list[bytes]:
    tokenizer = runtime.model.tokenizer
    wrong = next((token for token in tokens if not 0 <= token < tokenizer.vocabulary), None)
    if wrong is not None:
        raise InvalidRequest(
            f"token {wrong} is not in the vocabulary (0 to {tokenizer.vocabulary - 1})"
        )
    return [tokenizer.piece(token) for token in in_turns(tokens)]


def _render(runtime: ModelRuntime, frame: Frame) -> Frame:
    request = from_json(GenerateRequest, frame["request"])
    context = runtime.context_of(request)
    try:
        return {"prompt": runtime.prompts.render_within(request, context)}
    except TooManyTokens as long:
        raise prompt_overflow(request, f"at least {long.count}", long.count, context) from None


def _count(runtime: ModelRuntime, frame: Frame) -> Frame:
    request = from_json(GenerateRequest, frame["request"])
    return {"count": len(runtime.prompts.encode(request, MAX_TOKENS))}


def _encode(runtime: ModelRuntime, frame: Frame) -> Frame:
    request = from_json(GenerateRequest, frame["request"])
    if images_of(request):
        raise Unsupported(
            "the tokens of messages with images cannot be listed; their number can be counted",
            param="messages",
        )
    return {"tokens": runtime.prompts.encode(request, MAX_TOKENS)}


TEXT_REPLIES: dict[str, TextReply] = {
    "tokenize": _tokenize,
    "detokenize": _detokenize,
    "render": _render,
    "pieces": _pieces,
    "count": _count,
    "encode": _encode,
}
