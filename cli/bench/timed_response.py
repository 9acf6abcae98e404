"""One request, recorded: every arriving piece of the answer with its time.

The generator shares its cores with the server, so nothing is parsed while answers stream. It reads
with the client of the commands, a thread for each request: a token costs 30 microseconds, as with
a bare asyncio protocol, where httpx takes 95 (8 streams, two busy cores).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.client import Client, ClientError


class InvalidResponse(Exception):
    """What the server answered is not what is needed. The message says what it was."""


@dataclass(slots=True)
class TimedResponse:
    """What came back. Times are of time.perf_counter; fault says what broke, if it did."""

    started_s: float
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    ended_s: float = 0.0
    fault: str | None = None


def send_request(client: Client, path: str, body: Mapping[str, Any]) -> TimedResponse:
    """Send body and record the answer to its end. Faults and refusals are recorded."""
    record = TimedResponse(time.perf_counter())
    try:
        for piece in client.post(path, body):
            record.pieces.append((time.perf_counter(), piece))
    except ClientError as error:
        record.fault = error.message
    record.ended_s = time.perf_counter()
    return record


def sse_events(record: TimedResponse) -> Iterator[tuple[float, dict[str, Any]]]:
    """The JSON objects of the data lines of an event stream, until [DONE]. Comments are skipped.
    Raises InvalidResponse, also for the recorded fault."""
    pending = b""
    for moment, piece in record.pieces:
        *lines, pending = (pending + piece).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            yield moment, json_object(data)
    if record.fault is not None:
        raise InvalidResponse(record.fault)


def json_object(data: bytes) -> dict[str, Any]:
    """The object that data is. Raises InvalidResponse."""
    try:
        value = json.loads(data)
    except ValueError:
        raise InvalidResponse(f"the response is not JSON: {data[:80]!r}") from None
    if not isinstance(value, dict):
        raise InvalidResponse(f"the response is not a JSON object: {data[:80]!r}")
    return value
