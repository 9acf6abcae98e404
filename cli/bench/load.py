"""Sends a workload to a server in a closed loop and measures what comes back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.bench.http_request import ServerAddress, TimedResponse, send_request
from cli.bench.http_response import InvalidResponse, error_text, parse_response
from cli.bench.request_metrics import RequestMetrics, request_metrics
from cli.bench.summary import Summary, summarize
from cli.bench.workload import TokenScale, Workload, body, fit_scale, messages, text

CHAT = "/v1/chat/completions"
PROBE_WORDS = (8, 72)


class LoadError(Exception):
    """The server did not answer as needed. The message says what it did."""


@dataclass(frozen=True, slots=True)
class BenchRun:
    """A finished run. generator_cpu_s is what this process used while it ran."""

    workload: Workload
    summary: Summary
    measured: tuple[RequestMetrics, ...]
    generator_cpu_s: float


def calibrate(server: ServerAddress, model: str) -> TokenScale:
    """Ask the server how many tokens two prompts have. Raises LoadError."""
    counts = [_prompt_tokens(server, model, words) for words in PROBE_WORDS]
    try:
        return fit_scale(PROBE_WORDS[0], counts[0], PROBE_WORDS[1], counts[1])
    except ValueError as error:
        raise LoadError(f"the token counts of the server are inconsistent: {error}") from None


def _prompt_tokens(server: ServerAddress, model: str, words: int) -> int:
    turns = [{"role": "user", "content": text("probe", words)}]
    probe = {"model": model, "messages": turns, "max_tokens": 1, "temperature": 0}
    answer = post_json(server, CHAT, probe)
    tokens = (answer.get("usage") or {}).get("prompt_tokens")
    if not isinstance(tokens, int):
        raise LoadError("the response has no usage.prompt_tokens")
    return tokens


def post_json(server: ServerAddress, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """One request that is not streamed; its JSON answer. Raises LoadError."""
    try:
        answer = parse_response(asyncio.run(send_request(server, server.request(path, content))))
    except InvalidResponse as error:
        raise LoadError(str(error)) from None
    if answer.status != 200:
        raise LoadError(f"HTTP {answer.status}: {error_text(answer.body)}")
    value = json.loads(answer.body)
    if not isinstance(value, dict):
        raise LoadError("the response is not a JSON object")
    return value


def run(
    server: ServerAddress,
    model: str,
    work: Workload,
    scale: TokenScale,
    on_done: Callable[[int], None] = lambda count: None,
) -> BenchRun:
    """Send all requests of work. on_done is called with the number answered so far. Failed
    requests are counted in the summary, not raised."""
    requests = [
        server.request(CHAT, body(model, messages(work, index, scale), work.output_tokens))
        for index in range(work.requests)
    ]
    cpu_s = time.process_time()
    exchanges = asyncio.run(_closed_loop(server, requests, work.clients, on_done))
    cpu_s = time.process_time() - cpu_s
    measured = tuple(request_metrics(one) for one in exchanges)
    return BenchRun(work, summarize(measured, min(work.clients, work.requests)), measured, cpu_s)


async def _closed_loop(
    server: ServerAddress, requests: Sequence[bytes], clients: int, on_done: Callable[[int], None]
) -> list[TimedResponse]:
    waiting: Iterator[bytes] = iter(requests)
    done: list[TimedResponse] = []

    async def client() -> None:
        for request in waiting:
            done.append(await send_request(server, request))
            on_done(len(done))

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return done
