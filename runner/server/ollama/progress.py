"""The answer to a long task: lines of NDJSON, or for clients without streams the last one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from runner.server.http_request import HttpRequest
from runner.server.sse import NDJSON


class ProgressStream:
    """What the client sees of a task."""

    def __init__(self, http: HttpRequest, streamed: bool) -> None:
        self._http = http
        self._streamed = streamed

    async def tell(self, line: Mapping[str, Any]) -> None:
        """Send a line of progress."""
        if self._streamed:
            if not self._http.started:
                await self._http.start(NDJSON)
            await self._http.write(to_json(line) + b"\n")

    async def finish(self, line: Mapping[str, Any]) -> None:
        """Send the last line."""
        if self._streamed:
            await self.tell(line)
            await self._http.finish()
        else:
            await self._http.reply(dict(line))
