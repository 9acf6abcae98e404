"""The access log: a line of JSON for each request, in a file of its own.

Lines are gathered and written by a thread, so that a slow disk delays no request; where it hangs,
lines are left out, and the daemon's log says how many. The file is rotated as the daemon's log is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from runner.server.request_log import RequestRecord, RequestSink

log = logging.getLogger("hearth.http")

FILE_NAME = "access.log"
MAX_BYTES = 8 << 20  # of the file, and as much of the one before
MAX_WAITING = 10_000  # lines
_WRITE_EVERY_S = 0.5
_MAX_PATH_CHARS = 1000


class AccessLog(RequestSink):
    """Appends to path, which its user alone can read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[str] = []
        self._left_out = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def add(self, record: RequestRecord) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._left_out += 1
            return
        self._waiting.append(_line(record))
        if self._timer is None and self._writing is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_WRITE_EVERY_S, self._begin)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await self._writing
        await self._write()

    def _begin(self) -> None:
        self._timer = None
        self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while self._waiting:
            lines, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self._append, "".join(lines).encode())
            except OSError as error:
                log.error("%s cannot be written: %s", self._path, error.strerror)
        if self._left_out:
            log.error("%s: %d requests are not in it: the disk was too slow", self._path,
                      self._left_out)  # fmt: skip
            self._left_out = 0
        self._writing = None

    def _append(self, data: bytes) -> None:
        with suppress(FileNotFoundError):
            if self._path.stat().st_size + len(data) > MAX_BYTES:
                self._path.replace(self._path.with_suffix(".old.log"))
        with open(self._path, "ab", opener=_private) as file:
            file.write(data)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _line(record: RequestRecord) -> str:
    """Without the query, which may hold what is nobody's business."""
    began = datetime.fromtimestamp(record.began_ns / 1e9, UTC)
    usage = record.usage
    fields = {
        "time": began.isoformat(timespec="milliseconds"),
        "peer": (record.scope.get("client") or ("",))[0],
        "key": record.key,
        "method": record.scope["method"],
        "path": record.scope["path"][:_MAX_PATH_CHARS],
        "status": record.status,
        "error": record.error,
        "bytes": record.sent_bytes,
        "duration_s": round(record.took_s, 6),
        "model": record.model,
        "prompt_tokens": usage and usage.prompt_tokens,
        "cached_tokens": usage and usage.cached_tokens,
        "completion_tokens": usage and usage.completion_tokens,
        "finish_reason": record.reason,
        "request_id": record.request_id,
    }
    return json.dumps(fields) + "\n"
