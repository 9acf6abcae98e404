"""The framing of streams: server-sent events, and lines of JSON.

A server-sent event is "data: ...", a blank line; a comment keeps the connection alive while a
long prompt is read.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

EVENT_STREAM = "text/event-stream; charset=utf-8"
NDJSON = "application/x-ndjson"
KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE_S = 10.0


def event(data: bytes) -> bytes:
    """A server-sent event."""
    return b"data: " + data + b"\n\n"


def with_field(data: bytes, name: str, value: Any) -> bytes:
    """An event that is an object, with one field more."""
    return data.removesuffix(b"}\n\n") + b',"%s":%s}\n\n' % (name.encode(), to_json(value))
