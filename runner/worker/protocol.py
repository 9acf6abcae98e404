"""The frames between the daemon and a worker, over a socketpair.

A frame is four bytes of length (big-endian) and that many bytes of UTF-8 JSON, an object with
"op". Nothing else crosses: no pickles, no file descriptors. Either side ends the connection on
a frame that is too long or not an object with a known op.

Daemon to worker
    load      plan                         first frame; LoadPlan as an object
    generate  id, request                  GenerateRequest as an object; images as base64
    cancel    id                           no answer; the request sends nothing more
    embed     id, inputs, truncate, priority   inputs: list of strings or lists of token ids
    rank      id, pairs, truncate          [[query, document], ...]; answered as embed
    tokenize  id, text, add_special        answer: reply {"tokens": [...]}
    detokenize id, tokens                  answer: reply {"text": ...}
    render    id, request                  answer: reply {"prompt": ...}
    pieces    id, tokens                   answer: reply {"pieces": [...]}
    count     id, request                  answer: reply {"count": tokens of the prompt}
    encode    id, request                  answer: reply {"tokens": [...]}
    stats     id                           answer: reply, WorkerStats as an object
    shutdown                               finish nothing, exit 0

Worker to daemon
    loading   progress                     0.0 .. 1.0
    ready     info                         {"description", "chat_template": bool, "capacity": {...}}
    failed    error                        the load failed; the worker exits
    step      deltas                       [[id, delta], ...] of one engine step
    reply     id, result
    error     id, error                    the request with this id has ended
"""

from __future__ import annotations

import base64
import dataclasses
import json
import struct
from asyncio import IncompleteReadError, StreamReader
from collections.abc import Mapping, Sequence
from typing import Any

from runner.types import (
    Delta,
    Finish,
    GenerateRequest,
    LoadPlan,
    PromptToken,
    TokenLogprob,
)
from runner.worker.json_values import from_json_values

MAX_FRAME_BYTES = 64 * 1024 * 1024  # images travel in them
MAX_ANSWER_BYTES = 16 * 1024 * 1024  # what a worker sends
LENGTH = struct.Struct(">I")  # before the body of each frame


class ProtocolError(Exception):
    """The other side sent something that is no frame."""


def encode_frame(frame: Mapping[str, Any], most_bytes: int | None = None) -> bytes:
    """The bytes of a frame. Raises ProtocolError when it is longer than most_bytes (None:
    MAX_FRAME_BYTES), or holds what is not JSON or nests too deeply."""
    limit = MAX_FRAME_BYTES if most_bytes is None else most_bytes
    try:
        text = json.dumps(frame, separators=(",", ":"), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"the frame cannot be JSON: {error}") from None
    body = text.encode("utf-8", "surrogatepass")
    if len(body) > limit:
        raise ProtocolError(f"frame of {len(body)} bytes, at most {limit} are allowed")
    return LENGTH.pack(len(body)) + body


def decode_body(body: bytes) -> dict[str, Any]:
    """The frame in body. Raises ProtocolError."""
    try:
        frame = json.loads(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(frame, dict) or not isinstance(frame.get("op"), str):
        raise ProtocolError('a frame is an object with "op"')
    return frame


async def read_frame(reader: StreamReader) -> dict[str, Any] | None:
    """The next frame, None at the end of the stream. Raises ProtocolError."""
    try:
        head = await reader.readexactly(LENGTH.size)
        (size,) = LENGTH.unpack(head)
        if size > MAX_FRAME_BYTES:
            raise ProtocolError(f"frame of {size} bytes, at most {MAX_FRAME_BYTES} are allowed")
        return decode_body(await reader.readexactly(size))
    except (IncompleteReadError, ConnectionError):
        return None


def request_to_wire(request: GenerateRequest) -> dict[str, Any]:
    """A request as JSON values."""
    fields = dataclasses.asdict(request)
    for message in fields["messages"] or ():
        for image in message["images"]:
            image["data"] = _b64(image["data"])
    return fields


def request_from_wire(value: Mapping[str, Any]) -> GenerateRequest:
    """The inverse of request_to_wire."""
    return from_json_values(GenerateRequest, value)


def plan_to_wire(plan: LoadPlan) -> dict[str, Any]:
    """A load plan as JSON values."""
    return dataclasses.asdict(plan)


def plan_from_wire(value: Mapping[str, Any]) -> LoadPlan:
    """The inverse of plan_to_wire."""
    return from_json_values(LoadPlan, value)


def delta_to_wire(delta: Delta) -> list[Any]:
    """A delta as [text, token_count] or [text, token_count, logprobs, finish] or with prompt
    after that: this is the hot frame, so the usual one is two values. Pieces travel as base64."""
    if not delta.logprobs and delta.finish is None and not delta.prompt:
        return [delta.text, delta.token_count]
    finish = None if delta.finish is None else dataclasses.asdict(delta.finish)
    logprobs = _logprobs_to_wire(delta.logprobs)
    prompt = [_logprobs_to_wire(delta.prompt)] if delta.prompt else []
    return [delta.text, delta.token_count, logprobs, finish, *prompt]


def delta_from_wire(value: list[Any]) -> Delta:
    """The inverse of delta_to_wire."""
    if len(value) == 2:
        return Delta(value[0], value[1])
    text, count, logprobs, finish, *prompt = value
    return Delta(
        text,
        count,
        tuple(TokenLogprob(*_logprob_from_wire(x)) for x in logprobs),
        None if finish is None else from_json_values(Finish, finish),
        tuple(PromptToken(*_logprob_from_wire(x)) for items in prompt for x in items),
    )


def _b64(piece: bytes) -> str:
    return base64.b64encode(piece).decode("ascii")


def _logprobs_to_wire(items: Sequence[TokenLogprob | PromptToken]) -> list[Any]:
    return [
        [item.token, _b64(item.piece), item.logprob, [[t, _b64(p), lp] for t, p, lp in item.top]]
        for item in items
    ]


def _logprob_from_wire(value: list[Any]) -> tuple[Any, ...]:
    """The fields of a TokenLogprob or PromptToken."""
    token, piece, logprob, top = value
    alternatives = tuple((t, base64.b64decode(p), lp) for t, p, lp in top)
    return token, base64.b64decode(piece), logprob, alternatives
