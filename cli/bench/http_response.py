"""Reads recorded exchanges afterwards: status, body, and server-sent events with their times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cli.bench.http_request import TimedResponse


class InvalidResponse(Exception):
    """The recorded bytes are no complete HTTP answer."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The status, and the decoded body in pieces with the time each was complete."""

    status: int
    pieces: list[tuple[float, bytes]] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        """All pieces joined."""
        return b"".join(piece for _, piece in self.pieces)


def parse_response(exchange: TimedResponse) -> HttpResponse:
    """The answer of an exchange. Raises BadAnswer with the recorded fault or what is missing."""
    head, rest = _split_head(exchange)
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ", 2)
    if len(parts) < 2 or not parts[1].isdigit():
        raise InvalidResponse(f"the response is not HTTP: {lines[0][:80]!r}")
    headers = [line.partition(":") for line in lines[1:]]
    chunked = any(
        name.strip().lower() == "transfer-encoding" and "chunked" in value.lower()
        for name, _, value in headers
    )
    return HttpResponse(int(parts[1]), list(_chunks(rest) if chunked else rest))


def _split_head(exchange: TimedResponse) -> tuple[bytes, Iterator[tuple[float, bytes]]]:
    pending = b""
    arrivals = iter(exchange.arrivals)
    for moment, data in arrivals:
        pending += data
        head, found, body = pending.partition(b"\r\n\r\n")
        if found:
            return head, _and_then((moment, body), arrivals)
    raise InvalidResponse(exchange.fault or "the server closed the connection without a response")


def _and_then(
    first: tuple[float, bytes], rest: Iterator[tuple[float, bytes]]
) -> Iterator[tuple[float, bytes]]:
    if first[1]:
        yield first
    yield from rest


def _chunks(arrivals: Iterator[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """The data of chunked transfer encoding (RFC 9112, 7.1), each with its time of arrival."""
    pending = b""
    for moment, data in arrivals:
        pending += data
        while True:
            line, found, rest = pending.partition(b"\r\n")
            if not found:
                break
            try:
                length = int(line.split(b";")[0], 16)
            except ValueError:
                raise InvalidResponse(f"invalid chunk length {line[:20]!r}") from None
            if length == 0:
                return
            if len(rest) < length + 2:
                break
            yield moment, rest[:length]
            pending = rest[length + 2 :]
    raise InvalidResponse("the connection was closed before the response was complete")


def sse_events(answer: HttpResponse) -> Iterator[tuple[float, dict[str, Any]]]:
    """The JSON objects of the data lines of an event stream, until [DONE]. Comments are skipped."""
    pending = b""
    for moment, piece in answer.pieces:
        *lines, pending = (pending + piece).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            yield moment, _object(data)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        raise InvalidResponse(f"an event that is not JSON: {data[:80]!r}") from None
    if not isinstance(value, dict):
        raise InvalidResponse(f"an event that is not an object: {data[:80]!r}")
    return value


def error_text(body: bytes) -> str:
    """The message of an error body, or the start of the body."""
    try:
        value = json.loads(body)
    except ValueError:
        return " ".join(body[:200].decode("utf-8", "replace").split())
    return error_message(value)


def error_message(value: object) -> str:
    """The message of an error object of any of the known shapes."""
    inner = value.get("error", value) if isinstance(value, dict) else value
    if isinstance(inner, dict):
        inner = inner.get("message", inner)
    return " ".join(str(inner).split())
