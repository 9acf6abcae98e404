"""The answer to a long task: lines of NDJSON, or for clients without streams the last one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from runner.library.progress import Progress
from runner.server.answers import StatusResponse
from runner.server.http_request import HttpRequest
from runner.server.sse import NDJSON

_FIELDS = ("status", "digest", "total", "completed", "resumed", "unit", "model", "state")


class ProgressStream:
    """What the client sees of a task."""

    def __init__(self, http: HttpRequest, streamed: bool = True) -> None:
        self._http = http
        self._streamed = streamed

    async def report(self, progress: Progress) -> None:
        """Send a line of progress."""
        values = {name: getattr(progress, name) for name in _FIELDS}
        await self.tell({name: value for name, value in values.items() if value is not None})

    async def tell(self, line: Mapping[str, Any]) -> None:
        """Send any line."""
        if self._streamed:
            if not self._http.started:
                await self._http.start(NDJSON)
            await self._http.write(to_json(printable(line)) + b"\n")

    async def finish(self, line: Mapping[str, Any], **streamed: Any) -> StatusResponse | None:
        """Send the last line, and return None; without a stream it is returned, to be the answer.
        streamed: fields that only a stream gets."""
        if not self._streamed:
            answer: StatusResponse = printable(line)
            return answer
        await self.tell({**line, **streamed})
        await self._http.finish()
        return None


def printable(value: Any) -> Any:
    """value with the texts made fit for JSON and for terminals: names of files may hold any
    byte."""
    if isinstance(value, str):
        return "".join(part if part.isprintable() else ascii(part)[1:-1] for part in value)
    if isinstance(value, Mapping):
        return {key: printable(item) for key, item in value.items()}
    return [printable(item) for item in value] if isinstance(value, list) else value
