"""Frames that ask for text or tokens, and their replies: the table at the end.

Called on the prompts' thread. Knows nothing of sockets or of the engine's steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runner.errors import InvalidRequest, Unsupported
from runner.types import GenerateRequest
from runner.worker.images import images_of
from runner.worker.json_codec import from_json
from runner.worker.loader import ModelRuntime

Frame = dict[str, Any]
TextReply = Callable[[ModelRuntime, Frame], Frame]


def _tokenize(runtime: ModelRuntime, frame: Frame) -> Frame:
    if frame.get("add_special", True):
        return {"tokens": runtime.prompts.encode_text(frame["text"])}
    tokens = runtime.model.tokenizer.encode(frame["text"], add_bos=False, parse_special=False)
    return {"tokens": tokens}


def _detokenize(runtime: ModelRuntime, frame: Frame) -> Frame:
    pieces = _token_bytes(runtime, frame["tokens"])
    return {"text": b"".join(pieces).decode("utf-8", "replace")}


def _pieces(runtime: ModelRuntime, frame: Frame) -> Frame:
    pieces = _token_bytes(runtime, frame["tokens"])
    return {"pieces": [piece.decode("utf-8", "replace") for piece in pieces]}


def _token_bytes(runtime: ModelRuntime, tokens: list[int]) -> list[bytes]:
    tokenizer = runtime.model.tokenizer
    for token in tokens:
        if not 0 <= token < tokenizer.vocabulary:
            raise InvalidRequest(
                f"token {token} is not in the vocabulary (0 to {tokenizer.vocabulary - 1})"
            )
    return [tokenizer.piece(token) for token in tokens]


def _render(runtime: ModelRuntime, frame: Frame) -> Frame:
    return {"prompt": runtime.prompts.render(from_json(GenerateRequest, frame["request"]))}


def _count(runtime: ModelRuntime, frame: Frame) -> Frame:
    return {"count": len(runtime.prompts.encode(from_json(GenerateRequest, frame["request"])))}


def _encode(runtime: ModelRuntime, frame: Frame) -> Frame:
    request = from_json(GenerateRequest, frame["request"])
    if images_of(request):
        raise Unsupported(
            "the tokens of messages with images cannot be listed; their number can be counted",
            param="messages",
        )
    return {"tokens": runtime.prompts.encode(request)}


TEXT_REPLIES: dict[str, TextReply] = {
    "tokenize": _tokenize,
    "detokenize": _detokenize,
    "render": _render,
    "pieces": _pieces,
    "count": _count,
    "encode": _encode,
}
