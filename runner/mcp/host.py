"""The MCP servers of a daemon: started when they are first used, ended when they no longer are."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from runner.errors import McpFailed, McpServerNotFound, QueueFull
from runner.mcp.config import ServerConfig, VisitedServer, read_servers
from runner.mcp.session import McpSession
from runner.mcp.wire import McpResult, McpTool, McpTools

log = logging.getLogger("hearth.mcp")

IDLE_S: Final = 600.0
MAX_VISITS: Final = 16  # servers that no file has, at a time
MAX_VISITS_OF_ONE: Final = 4  # of one caller
_FUNCTION: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(slots=True)
class _Kept:
    """A session between its uses. users: how many use it now."""

    session: McpSession
    users: int = 0
    idle_since: float = field(default_factory=time.monotonic)


class McpHost:
    """The servers of a mcp.json. The file is read anew at each use, and a server whose entry has
    changed is started anew. May raise Conflict for a file that is not sound."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: dict[str, _Kept] = {}
        self._starting: dict[str, asyncio.Lock] = {}
        self._ending: asyncio.Task[None] | None = None
        self._visits: Counter[str] = Counter()  # by their callers
        self._leaving: set[asyncio.Task[None]] = set()

    async def servers(self) -> dict[str, tuple[ServerConfig, bool]]:
        """What the file has, by name, and whether it runs."""
        found = await asyncio.to_thread(read_servers, self.path)
        return {name: (config, self._runs(name)) for name, config in found.items()}

    @asynccontextmanager
    async def opened(self, name: str) -> AsyncIterator[Server]:
        """The server name of the file, running. Raises McpServerNotFound, McpFailed."""
        config = await self.find(name)
        kept = await self._session(name, config)
        kept.users += 1
        try:
            yield Server(kept.session)
        finally:
            kept.users -= 1
            kept.idle_since = time.monotonic()
            if self._ending is None:
                self._ending = asyncio.create_task(self._end_idle())

    @asynccontextmanager
    async def visited(self, name: str, config: VisitedServer, caller: str) -> AsyncIterator[Server]:
        """A server that the file does not have, for as long as it is used. caller: for whom. Raises
        McpFailed, QueueFull."""
        if self._visits[caller] >= MAX_VISITS_OF_ONE or self._visits.total() >= MAX_VISITS:
            raise QueueFull(
                f"{self._visits.total()} MCP servers by server_url are in use, "
                f"{self._visits[caller]} of them by you; at most {MAX_VISITS} may be, "
                f"{MAX_VISITS_OF_ONE} by one client: try again later"
            )
        self._visits[caller] += 1
        session = None
        try:
            session = await McpSession.start(name, config)
            yield Server(session)
        finally:  # without waiting for a server that does not end
            leaving = asyncio.create_task(self._leave(session, caller))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def find(self, name: str) -> ServerConfig:
        """The entry of the file. Raises McpServerNotFound."""
        found = await asyncio.to_thread(read_servers, self.path)
        if name not in found:
            known = ", ".join(sorted(found)) or "none"
            raise McpServerNotFound(f"no MCP server {name[:80]!r} in {self.path}; there: {known}")
        return found[name]

    async def close(self) -> None:
        """End all servers."""
        if self._ending is not None:
            self._ending.cancel()
        await asyncio.gather(*self._leaving)
        kept, self._kept = self._kept, {}
        await asyncio.gather(*(entry.session.close() for entry in kept.values()))

    def _runs(self, name: str) -> bool:
        return name in self._kept and self._kept[name].session.is_open

    async def _leave(self, session: McpSession | None, caller: str) -> None:
        if session is not None:
            await session.close()
        self._visits[caller] -= 1
        self._visits += Counter()  # without those that have none

    async def _session(self, name: str, config: ServerConfig) -> _Kept:
        async with self._starting.setdefault(name, asyncio.Lock()):
            kept = self._kept.get(name)
            if kept is not None and kept.session.is_open and kept.session.config == config:
                return kept
            if kept is not None:
                await kept.session.close()
            log.info("starting the MCP server %s", name)
            kept = self._kept[name] = _Kept(await McpSession.start(name, config))
            return kept

    async def _end_idle(self) -> None:
        """End servers that nobody has used for a while, until none is left."""
        while self._kept:
            now = time.monotonic()
            for name, kept in list(self._kept.items()):
                if not kept.users and now - kept.idle_since >= IDLE_S:
                    del self._kept[name]
                    await kept.session.close()
            first = min((kept.idle_since for kept in self._kept.values()), default=now)
            await asyncio.sleep(max(1.0, first + IDLE_S - now))
        self._ending = None


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. Every call may raise McpFailed."""

    session: McpSession

    async def tools(self) -> McpTools:
        """The tools that it offers, without those that its entry disables."""
        found = await self.session.tools()
        disabled = self.session.config.disabledTools
        tools = [tool for tool in found["tools"] if tool["name"] not in disabled]
        return {"tools": tools, "problems": found["problems"]}

    async def call(self, tool: str, arguments: dict[str, Any], caller: str) -> McpResult:
        """What a tool gives. Who called what is logged, with neither arguments nor result."""
        if tool in self.session.config.disabledTools:
            raise McpFailed(f"the tool {tool} of {self.session.name} is disabled")
        begun, outcome = time.monotonic(), "failed"
        try:
            result = await self.session.call(tool, arguments)
            outcome = "error" if result["is_error"] else f"{len(result['text'])} characters"
            return result
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            took, who = time.monotonic() - begun, caller or "owner"
            log.info("%s: %s for %s, %.2f s, %s", self.session.name, tool, who, took, outcome)


def function_names(offered: Iterable[tuple[str, McpTool]]) -> dict[str, tuple[str, McpTool]]:
    """The names under which a model knows tools of servers: a tool's own where it is the only one
    of that name and fits, else the server's before it."""
    given = list(offered)
    own = Counter(tool["name"] for _, tool in given)
    names: dict[str, tuple[str, McpTool]] = {}
    for server, tool in given:
        name = tool["name"]
        if own[name] > 1 or _FUNCTION.fullmatch(name) is None:
            name = _OTHER.sub("_", f"{server}_{name}")[:64]
        while name in names:
            name = f"{name[:60]}_{len(names)}"
        names[name] = (server, tool)
    return names
