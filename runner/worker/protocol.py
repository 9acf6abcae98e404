"""The frames between the daemon and a worker, over a socketpair.

A frame is four bytes of length (big-endian) and that many bytes of UTF-8 JSON, an object with
"op". Nothing else crosses: no pickles, no file descriptors. Either side ends the connection on
a frame that is too long or not an object with a known op.

A large frame of the daemon comes in pieces, between which small ones go. The length of a piece has
the bit PIECE; then come PIECE_HEAD, the id of the request, of which there is one large frame at a
time, and a part of a value. The first value is a mark that nobody can guess, the next ones are the
frame's large texts and bytes, and the last one is its JSON, in which the mark and a number stand
for each of them. A small frame with the same id takes the place of one that is not complete.

Daemon to worker
    load      plan                         first frame; LoadPlan as an object
    generate  id, request                  GenerateRequest as an object; images as base64
    cancel    id                           no answer; the request sends nothing more
    pause     id                           no answer; it gives up its place in the batch
    resume    id                           no answer; it is queued again
    embed     id, inputs, truncate, priority, client, cache_salt, context_length, form,
              adapters
                                           inputs: list of strings or lists of token ids; answer:
                                           parts, each a list of vectors, and reply
                                           {"prompt_tokens": ...}
    rank      id, pairs, truncate, client  [[query, document], ...]; answered as embed
    tokenize  id, text, add_special, parse_special  answer: reply {"tokens": [...]}
    detokenize id, tokens                  answer: reply {"text": ...}
    render    id, request                  answer: reply {"prompt": ...}
    pieces    id, tokens                   answer: reply {"pieces": [...]}
    count     id, request                  answer: reply {"count": tokens of the prompt}
    encode    id, request                  answer: reply {"tokens": [...]}
    transcribe id, request                 TranscriptionRequest; answer: parts, each a Segment, and
                                           reply, a Recording
    synthesize id, request                 SynthesisRequest; answer: parts, each an AudioPiece, and
                                           reply, a Recording
    slot      id, action, ...              answer: reply; see runner.worker.slot_transfer
    adapter   id, action, ...              answer: reply; see runner.worker.adapter_transfer
    stats     id                           answer: reply, WorkerStats as an object
    grant     id, pool_tokens              the answer to grow: what the cache may have now
    shutdown                               finish nothing, exit 0

Worker to daemon
    loading   progress                     0.0 .. 1.0
    ready     info                         WorkerInfo as an object
    failed    error                        loading the model failed; the worker exits
    step      deltas                       [[id, delta], ...] of one engine step; may be none
    part      id, result                   what is there of a reply so far
    reply     id, result
    error     id, error                    the request with this id has ended
    grow      tokens                       the cache shall have room for so many
    lost                                   a thread does not come back from what it does
"""

from __future__ import annotations

import base64
import json
import struct
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from runner.types import Delta
from runner.worker.json_codec import Large, from_json, to_json


class ExitCode(IntEnum):
    """How a worker ends by itself."""

    LOAD_FAILED = 1
    ENGINE_FAILED = 70  # EX_SOFTWARE
    RANK_LOST = 71  # one of the processes that compute the model together
    PROTOCOL_ERROR = 76  # EX_PROTOCOL


MAX_FRAME_BYTES = 64 * 1024 * 1024  # images travel in them
MAX_ANSWER_BYTES = 16 * 1024 * 1024  # what a worker sends
MAX_VECTOR_NUMBERS = 1 << 20  # of all vectors of an answer
PART_NUMBERS = 1 << 14  # of those that go together: 0.3 ms to read
LENGTH = struct.Struct(">I")  # before the body of each frame
PIECE = 1 << 31
PIECE_HEAD = struct.Struct(">BBB")  # the bytes of the id, what the value is, whether it ends here
BYTES, TEXT, JSON = range(3)  # what a value is


class ProtocolError(Exception):
    """The other side sent something that is no frame."""


def _whole(value: Any) -> str:
    if isinstance(value, Large) and isinstance(value.value, str):
        return value.value
    raise TypeError(f"{type(value).__name__} is no JSON")


def encode_frame(
    frame: Mapping[str, Any],
    max_bytes: int | None = None,
    default: Callable[[Any], str] = _whole,
) -> bytes:
    """The bytes of a frame. default: gives what stands for a large value. Raises
    ProtocolError when it is longer than max_bytes (None: MAX_FRAME_BYTES), or holds what is not
    JSON or nests too deeply."""
    limit = MAX_FRAME_BYTES if max_bytes is None else max_bytes
    try:
        text = json.dumps(frame, separators=(",", ":"), ensure_ascii=False, default=default)
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"the frame cannot be JSON: {error}") from None
    body = text.encode("utf-8", "surrogatepass")
    if len(body) > limit:
        raise ProtocolError(f"frame of {len(body)} bytes, at most {limit} are allowed")
    return LENGTH.pack(len(body)) + body


def decode_body(body: bytes | bytearray) -> dict[str, Any]:
    """The frame in body. Raises ProtocolError."""
    try:
        frame = json.loads(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    return checked_frame(frame)


def checked_frame(frame: Any) -> dict[str, Any]:
    """What a body held, if it is a frame. Raises ProtocolError."""
    if not isinstance(frame, dict) or not isinstance(frame.get("op"), str):
        raise ProtocolError('a frame is an object with "op"')
    return frame


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker says of itself once the model is loaded. bos, eos: the texts of these tokens.
    unconfined: what of its sandbox this system does not have."""

    vocabulary: int
    bos: str | None = None
    eos: str | None = None
    unconfined: tuple[str, ...] = ()


def vector_to_wire(vector: Sequence[float]) -> str:
    """A vector: 64-bit floats, little-endian, in base64."""
    values = array("d", vector)
    if sys.byteorder == "big":
        values.byteswap()
    return base64.b64encode(values).decode()


def vector_from_wire(text: str) -> tuple[float, ...]:
    """The inverse of vector_to_wire. Raises TypeError or ValueError for what is no vector."""
    values = array("d")
    values.frombytes(base64.b64decode(text, validate=True))
    if sys.byteorder == "big":
        values.byteswap()
    return tuple(values)


def delta_to_wire(delta: Delta) -> Any:
    """A delta as [text, token_count], or as an object when there is more: this is the hot frame,
    and the usual one is two values."""
    more = delta.logprobs or delta.finish or delta.prompt or delta.progress or delta.dropped
    if not (more or delta.tokens):
        return [delta.text, delta.token_count]
    return to_json(delta)


def delta_from_wire(value: Any) -> Delta:
    """The inverse of delta_to_wire. Raises TypeError or ValueError for what is no delta."""
    if not isinstance(value, list):
        return from_json(Delta, value)
    text, count = value
    if type(text) is not str or type(count) is not int:
        raise TypeError("a delta is [text, token count] or an object")
    return Delta(text, count)
