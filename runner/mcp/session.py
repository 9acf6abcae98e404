"""One MCP server in use: the process that speaks with it, seen from the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import sys
from typing import Any, Final, cast

import psutil

from runner.cancellation import whole
from runner.child_process import StderrTail, child_options
from runner.errors import McpFailed
from runner.mcp.config import ServerConfig
from runner.mcp.wire import MAX_LINE_BYTES, McpResult, McpTools

log = logging.getLogger("hearth.mcp")

_START_S: Final = 45.0  # npx and uvx fetch what they run
_ANSWER_GRACE_S: Final = 5.0
_END_GRACE_S: Final = 6.0  # the SDK gives a server 4 s to end
_MAX_CALLS: Final = 16
_STDERR_KEPT_BYTES: Final = 2048
# What programs of the user expect to find; nothing of hearth's own settings is among them.
_GIVEN: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TMPDIR", "TZ",
                 "SYSTEMROOT", "PATHEXT", "APPDATA", "LOCALAPPDATA", "USERPROFILE",
                 "TEMP")  # fmt: skip


class McpSession:
    """A server's process, started and connected. Every call may raise McpFailed."""

    def __init__(self, name: str, config: ServerConfig, process: asyncio.subprocess.Process):
        self.name = name
        self.config = config
        self._process = process
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._slots = asyncio.Semaphore(_MAX_CALLS)
        self._ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._ended = ""
        self._stderr = StderrTail(process, _STDERR_KEPT_BYTES)
        self._tasks = [asyncio.create_task(self._read()), self._stderr.reading]

    @classmethod
    async def start(cls, name: str, config: ServerConfig) -> McpSession:
        """Start the server name and connect to it."""
        environment = {key: os.environ[key] for key in _GIVEN if key in os.environ}
        started = config.model_copy(update={"env": environment | config.env})
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-m", "runner.mcp"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MAX_LINE_BYTES,
            **child_options(),
        )
        session = cls(name, config, process)
        try:
            session._write(started.model_dump())
            async with asyncio.timeout(_START_S):
                await session._ready
        except TimeoutError:
            await session.close()
            raise McpFailed(f"the MCP server {name} did not start within {_START_S:g} s") from None
        except BaseException:
            await session.close()
            raise
        return session

    @property
    def is_open(self) -> bool:
        """Whether it can be asked."""
        return not self._ended

    async def tools(self) -> McpTools:
        """What it offers."""
        return cast("McpTools", await self._ask({"op": "tools"}))

    async def call(self, tool: str, arguments: dict[str, Any]) -> McpResult:
        """What a tool gives."""
        asked = {"op": "call", "tool": tool, "arguments": arguments}
        return cast("McpResult", await self._ask(asked))

    async def close(self) -> None:
        """End the server and its process; calls under way fail."""
        await whole(self._end())

    async def _ask(self, asked: dict[str, Any]) -> Any:
        async with self._slots:
            if self._ended:
                raise McpFailed(self._ended)
            number = next(self._numbers)
            answer = self._waiting[number] = asyncio.get_running_loop().create_future()
            try:
                self._write(asked | {"id": number})
                async with asyncio.timeout(self.config.timeout + _ANSWER_GRACE_S):
                    return await answer
            except TimeoutError:
                await self.close()  # its process does not even say that it is late
                raise McpFailed(f"the MCP server {self.name} does not answer") from None
            except asyncio.CancelledError:
                self._write({"op": "cancel", "id": number})
                raise
            finally:
                del self._waiting[number]

    def _write(self, line: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while (line := await self._process.stdout.readline()).endswith(b"\n"):
                answer = json.loads(line)
                if "id" in answer:
                    self._settle(self._waiting.get(answer["id"]), answer)
                elif "error" in answer:
                    self._fail(f"the MCP server {self.name} failed: {answer['error']}")
                elif not self._ready.done():
                    self._ready.set_result(None)
        except (ValueError, RecursionError):
            self._fail(f"the MCP server {self.name} failed: its process sent an invalid answer")
        self._fail(f"the MCP server {self.name} failed: it ended")

    def _settle(self, waiting: asyncio.Future[Any] | None, answer: dict[str, Any]) -> None:
        if waiting is None or waiting.done():
            return
        if "error" in answer:
            waiting.set_exception(McpFailed(f"the MCP server {self.name}: {answer['error']}"))
        else:
            waiting.set_result(answer["result"])

    def _fail(self, text: str) -> None:
        self._ended = self._ended or text
        for waiting in (self._ready, *self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(McpFailed(self._ended))
        if not self._ready.cancelled():
            self._ready.exception()  # nobody may be waiting for it

    async def _end(self) -> None:
        self._fail(f"the MCP server {self.name} was ended")
        process = self._process
        if process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), _END_GRACE_S)
            except TimeoutError:
                await asyncio.to_thread(_kill_tree, process.pid)
                await process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._stderr.text and self.config.command is not None:  # others may tell of secrets
            log.info("%s wrote: %s", self.name, self._stderr.text)


def _kill_tree(pid: int) -> None:
    """End a process and all that it has started, in whatever group they are."""
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        for process in (*top.children(recursive=True), top):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
