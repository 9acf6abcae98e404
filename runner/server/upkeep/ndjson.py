"""NDJSON of a long task, and its steps in a thread so that the event loop is free."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from typing import Any, TypeVar

from pydantic_core import to_json

from runner.server.http_request import HttpRequest
from runner.server.sse import NDJSON

ItemT = TypeVar("ItemT")
_BATCH_S = 0.1


async def write_line(http: HttpRequest, line: dict[str, Any]) -> None:
    """Send a line; the first one begins the answer."""
    if not http.started:
        await http.start(NDJSON)
    await http.write(to_json(plain(line)) + b"\n")


def plain(value: Any) -> Any:
    """value with the texts made fit for JSON and for terminals: names of files may hold any
    byte."""
    if isinstance(value, str):
        return "".join(part if part.isprintable() else ascii(part)[1:-1] for part in value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


async def batches(items: Iterator[ItemT]) -> AsyncGenerator[list[ItemT], None]:
    """What an iterator that blocks gives, as much at a time as comes in a tenth of a second.

    When the reader is cancelled, the batch under way ends first.
    """
    while True:
        step = asyncio.ensure_future(asyncio.to_thread(_advance, items))
        try:
            batch, ended = await asyncio.shield(step)
        except asyncio.CancelledError:
            await asyncio.wait({step})
            raise
        if batch:
            yield batch
        if ended:
            return


def _advance(items: Iterator[ItemT]) -> tuple[list[ItemT], bool]:
    batch, until_s = [], time.monotonic() + _BATCH_S
    for item in items:
        batch.append(item)
        if time.monotonic() >= until_s:
            return batch, False
    return batch, True
