"""python -I -m runner.mcp: one MCP server for the daemon, see runner.mcp.wire. Ends when stdin
does, and the server with it."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from runner.mcp.config import VisitedServer
from runner.mcp.wire import (
    MAX_DESCRIPTION_CHARS,
    MAX_ERROR_CHARS,
    MAX_LINE_BYTES,
    MAX_RESULT_CHARS,
    MAX_SCHEMA_BYTES,
    MAX_TOOLS,
    MAX_TOOLS_BYTES,
    McpResult,
    McpTool,
    McpTools,
)
from runner.pipes import stdin_reader
from runner.process_limits import limits_of, set_limits
from runner.programs import ROOT_FOLDER
from runner.stop_signals import on_stop
from runner.worker.isolation import isolate

_MEMORY_BYTES = 640 << 20  # address space, of which Python and the SDK take a third
_CONNECT_S = 30.0
_MAX_PAGES = 64
_URL = re.compile(r"(https?://)(?:[^\s/@]*@)?([^\s/?#]+)\S*")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
# How models' formats mark turns and calls: a result that holds such a mark would end its own turn.
_MARKS = re.compile(
    r"<(?=\||\uff5c|start_of_turn>|end_of_turn>|/?tool_call>|/?tool_response>|/?think>)"
    r"|\[(?=/?INST\]|/?TOOL_|/?AVAILABLE_TOOLS\])"
)


def main() -> int:
    """Serve until stdin ends."""
    isolate()
    _, most = limits_of("AS")
    set_limits("AS", _MEMORY_BYTES, most)
    asyncio.run(_serve())
    return 0


async def _serve() -> None:
    lines = await stdin_reader(MAX_LINE_BYTES)
    task = asyncio.current_task()
    assert task is not None
    on_stop(asyncio.get_running_loop(), task.cancel)
    config = VisitedServer.model_validate_json(await lines.readline())
    try:
        async with _connected(config) as client:
            _say({"ready": True})
            await _answer_all(client, lines, config.timeout)
    except asyncio.CancelledError:
        return
    except Exception as error:
        _say({"error": _told(error)})


@asynccontextmanager
async def _connected(config: VisitedServer) -> AsyncIterator[Any]:
    import httpx2
    from mcp import Client, StdioServerParameters
    from mcp.client.streamable_http import streamable_http_client

    if config.command is not None:
        if shutil.which(config.command, path=config.env.get("PATH")) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), config.command)
        server = StdioServerParameters(
            command=sys.executable,
            args=["-I", "-m", "runner.mcp.launch", config.command, *config.args],
            env=config.env,
            cwd=config.cwd or ROOT_FOLDER,
        )
        async with Client(server, read_timeout_seconds=_CONNECT_S) as client:
            yield client
        return
    assert config.url is not None
    timeout = httpx2.Timeout(_CONNECT_S, read=config.timeout)
    network = httpx2.AsyncHTTPTransport()
    if config.public_only:
        from runner.mcp.public_network import guard

        guard(network)
    async with httpx2.AsyncClient(
        headers=config.headers, timeout=timeout, transport=network
    ) as http:
        transport = streamable_http_client(config.url, http_client=http)
        async with Client(transport, read_timeout_seconds=_CONNECT_S) as client:
            yield client


async def _answer_all(client: Any, lines: asyncio.StreamReader, timeout_s: float) -> None:
    """Answer each line, several at a time, until stdin or the server ends. A call that takes too
    long is an error of that call."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    gone = asyncio.Event()

    async def answer(asked: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                if asked["op"] == "tools":
                    result: Any = await _tools(client)
                else:
                    result = await _call(client, asked["tool"], asked["arguments"])
            _say({"id": asked["id"], "result": result})
        except TimeoutError:
            _say({"id": asked["id"], "error": f"no answer within {timeout_s:g} s"})
        except Exception as error:
            closed = isinstance(error, MCPError) and error.code == CONNECTION_CLOSED
            _say({"id": asked["id"], "error": "it ended" if closed else _told(error)})
            if closed:
                _say({"error": "it ended"})
                gone.set()
        finally:
            running.pop(asked["id"], None)

    async def read() -> None:
        while line := await lines.readline():
            asked = json.loads(line)
            if asked["op"] == "cancel":
                if asked["id"] in running:
                    running.pop(asked["id"]).cancel()  # of which the SDK tells the server
            else:
                running[asked["id"]] = asyncio.create_task(answer(asked))
        gone.set()

    running: dict[int, asyncio.Task[None]] = {}
    reading = asyncio.create_task(read())
    try:
        await gone.wait()
    finally:
        for task in (reading, *running.values()):
            task.cancel()


async def _tools(client: Any) -> McpTools:
    tools: dict[str, McpTool] = {}
    problems: list[str] = []
    left_bytes = MAX_TOOLS_BYTES
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        for tool in page.tools:
            if (problem := _problem(tool)) is not None:
                problems.append(problem)
                continue
            told = _as_told(tool)
            left_bytes -= len(json.dumps(told))
            if left_bytes < 0 or len(tools) >= MAX_TOOLS:
                problems.append(
                    f"it lists more than the first {len(tools)} tools, the others are left out"
                )
                return {"tools": list(tools.values()), "problems": problems[-16:]}
            tools.setdefault(told["name"], told)
        cursor = page.next_cursor
        if cursor is None:
            break
    return {"tools": list(tools.values()), "problems": problems[-16:]}


def _problem(tool: Any) -> str | None:
    if _NAME.fullmatch(tool.name) is None:
        return f"tool {tool.name[:80]!r} is left out: a name has A-Z a-z 0-9 _ . - only"
    size = len(json.dumps(tool.input_schema))
    if size > MAX_SCHEMA_BYTES:
        return (
            f"tool {tool.name} is left out: its schema has {size} bytes (limit {MAX_SCHEMA_BYTES})"
        )
    return None


def _as_told(tool: Any) -> McpTool:
    description = _plain((tool.description or "")[:MAX_DESCRIPTION_CHARS])
    hints = tool.annotations
    return {
        "name": tool.name,
        "description": description,
        "parameters": tool.input_schema,
        "read_only": hints is not None and hints.read_only_hint is True,
    }


async def _call(client: Any, tool: str, arguments: dict[str, Any]) -> McpResult:
    answer = await client.call_tool(tool, arguments)
    blocks = [_text_of(block) for block in answer.content]
    if not blocks and answer.structured_content is not None:
        blocks = [json.dumps(answer.structured_content, ensure_ascii=False)]
    text = "\n".join(blocks)
    result: McpResult = {"text": _plain(text[:MAX_RESULT_CHARS]), "is_error": bool(answer.is_error)}
    if len(text) > MAX_RESULT_CHARS:
        result["cut"] = len(text) - MAX_RESULT_CHARS
        result["text"] += f"\n[{result['cut']} more characters were left out]"
    return result


def _text_of(block: Any) -> str:
    """A block of a result as text; of what is none, what it is."""
    if block.type == "text":
        return str(block.text)
    if block.type == "resource" and getattr(block.resource, "text", None) is not None:
        return str(block.resource.text)
    kind = getattr(block, "mime_type", None) or block.type
    return f"[{kind}, not shown]"


def _plain(text: str) -> str:
    """text without what a model's format would read as the end of a turn or the start of a call:
    a blank is put into such marks. Lone surrogates are replaced."""
    text = _MARKS.sub(lambda mark: mark[0] + " ", text)
    return text.encode("utf-8", "replace").decode()


def _told(error: BaseException) -> str:
    """What went wrong, in a line; of a group its first error. Of URLs the host alone: there may be
    a token in the rest."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"no such program or folder: {error.filename}"
    if isinstance(error, MemoryError):
        return "it sent more than fits in memory"
    text = " ".join(str(error).split()) or type(error).__name__
    text = _URL.sub(r"\1\2", text)
    return text[:MAX_ERROR_CHARS]


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
