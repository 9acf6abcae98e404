"""Sends a workload to a server in a closed loop and measures what comes back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.bench.events import BadAnswer, error_text, read_answer
from cli.bench.exchange import Exchange, Server, exchange
from cli.bench.measures import Measured, measure
from cli.bench.summary import Summary, summarize
from cli.bench.workload import Scale, Workload, body, messages, scale_of, text

CHAT = "/v1/chat/completions"
PROBE_WORDS = (8, 72)


class LoadError(Exception):
    """The server did not answer as needed. The message says what it did."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run. generator_cpu_s is what this process used while it ran."""

    workload: Workload
    summary: Summary
    measured: tuple[Measured, ...]
    generator_cpu_s: float


def calibrate(server: Server, model: str) -> Scale:
    """Ask the server how many tokens two prompts have. Raises LoadError."""
    counts = [_prompt_tokens(server, model, words) for words in PROBE_WORDS]
    try:
        return scale_of(PROBE_WORDS[0], counts[0], PROBE_WORDS[1], counts[1])
    except ValueError as error:
        raise LoadError(f"the server counts tokens strangely: {error}") from None


def _prompt_tokens(server: Server, model: str, words: int) -> int:
    turns = [{"role": "user", "content": text("probe", words)}]
    asked = {"model": model, "messages": turns, "max_tokens": 1, "temperature": 0}
    answer = ask(server, CHAT, asked)
    tokens = (answer.get("usage") or {}).get("prompt_tokens")
    if not isinstance(tokens, int):
        raise LoadError("the server's answer holds no usage.prompt_tokens")
    return tokens


def ask(server: Server, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """One request that is not streamed; its JSON answer. Raises LoadError."""
    try:
        answer = read_answer(asyncio.run(exchange(server, server.request(path, content))))
    except BadAnswer as error:
        raise LoadError(str(error)) from None
    if answer.status != 200:
        raise LoadError(f"HTTP {answer.status}: {error_text(answer.body)}")
    value = json.loads(answer.body)
    if not isinstance(value, dict):
        raise LoadError("the server's answer is not a JSON object")
    return value


def run(
    server: Server,
    model: str,
    work: Workload,
    scale: Scale,
    on_done: Callable[[int], None] = lambda count: None,
) -> Run:
    """Send all requests of work. on_done is called with the number answered so far. Failed
    requests are counted in the summary, not raised."""
    requests = [
        server.request(CHAT, body(model, messages(work, index, scale), work.output_tokens))
        for index in range(work.requests)
    ]
    cpu_s = time.process_time()
    exchanges = asyncio.run(_closed_loop(server, requests, work.clients, on_done))
    cpu_s = time.process_time() - cpu_s
    measured = tuple(measure(one) for one in exchanges)
    return Run(work, summarize(measured, min(work.clients, work.requests)), measured, cpu_s)


async def _closed_loop(
    server: Server, requests: Sequence[bytes], clients: int, on_done: Callable[[int], None]
) -> list[Exchange]:
    waiting: Iterator[bytes] = iter(requests)
    done: list[Exchange] = []

    async def client() -> None:
        for request in waiting:
            done.append(await exchange(server, request))
            on_done(len(done))

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return done
