"""The answer to a long task: lines of NDJSON, or for clients without streams the last one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from runner.server.exchange import Exchange
from runner.server.stream import NDJSON


class Answer:
    """What the client sees of a task."""

    def __init__(self, exchange: Exchange, streamed: bool) -> None:
        self._exchange = exchange
        self._streamed = streamed

    async def tell(self, line: Mapping[str, Any]) -> None:
        """Send a line of progress."""
        if self._streamed:
            if not self._exchange.started:
                await self._exchange.start(NDJSON)
            await self._exchange.write(to_json(line) + b"\n")

    async def finish(self, line: Mapping[str, Any]) -> None:
        """Send the last line."""
        if self._streamed:
            await self.tell(line)
            await self._exchange.finish()
        else:
            await self._exchange.reply(dict(line))
