"""Whose work is done next, where only one piece is done at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ClientTurns:
    """One at a time: clients in turns, the work of one client in the order it came."""

    def __init__(self) -> None:
        self._busy = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by client, the next one first

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for the client's turn, which ends with the block."""
        if self._busy:
            await self._wait(client)
        self._busy = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, client: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it came at the same moment
                self._pass_on()
            elif (own := self._waiting.get(client)) and turn in own:
                own.remove(turn)
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            client = next(iter(self._waiting))
            own = self._waiting.pop(client)
            turn = own.popleft() if own else None
            if own:
                self._waiting[client] = own  # behind the others
            if turn is not None and not turn.done():
                turn.set_result(None)
                return
        self._busy = False
