"""Sends a workload to a server in a closed loop and measures what comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from cli.bench.request_metrics import request_metrics
from cli.bench.summary import Summary, summarize
from cli.bench.timed_response import InvalidResponse, TimedResponse, json_object, send_request
from cli.bench.workload import TokenScale, Workload, body, fit_scale, messages, text
from runner.client import Client

CHAT = "/v1/chat/completions"
PROBE_WORDS = (8, 72)


@dataclass(frozen=True, slots=True)
class BenchRun:
    """A finished run. generator_cpu_s is what this process used while it ran."""

    workload: Workload
    summary: Summary
    generator_cpu_s: float


def calibrate(client: Client, model: str) -> TokenScale:
    """Ask the server how many tokens two prompts have. Raises InvalidResponse."""
    counts = [_prompt_tokens(client, model, words) for words in PROBE_WORDS]
    try:
        return fit_scale(PROBE_WORDS[0], counts[0], PROBE_WORDS[1], counts[1])
    except ValueError as error:
        raise InvalidResponse(f"the token counts of the server are inconsistent: {error}") from None


def _prompt_tokens(client: Client, model: str, words: int) -> int:
    turns = [{"role": "user", "content": text("probe", words)}]
    probe = {"model": model, "messages": turns, "max_tokens": 1, "temperature": 0}
    record = send_request(client, CHAT, probe)
    if record.fault is not None:
        raise InvalidResponse(record.fault)
    answer = json_object(b"".join(piece for _, piece in record.pieces))
    tokens = (answer.get("usage") or {}).get("prompt_tokens")
    if not isinstance(tokens, int):
        raise InvalidResponse("the response has no usage.prompt_tokens")
    return tokens


def run(
    client: Client,
    model: str,
    work: Workload,
    scale: TokenScale,
    on_done: Callable[[int], None] = lambda _count: None,
) -> BenchRun:
    """Send all requests of work. on_done is called with the number answered so far. Failed
    requests are counted in the summary, not raised."""
    bodies = iter(
        [
            body(model, messages(work, index, scale), work.output_tokens)
            for index in range(work.requests)
        ]
    )
    records: list[TimedResponse] = []
    counting = threading.Lock()

    def send() -> None:
        for one in bodies:
            record = send_request(client, CHAT, one)
            with counting:
                records.append(record)
                on_done(len(records))

    # Daemon threads: an interrupted command ends without waiting for the answers.
    threads = [threading.Thread(target=send, daemon=True) for _ in range(work.clients)]
    cpu_s = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu_s = time.process_time() - cpu_s
    measured = tuple(request_metrics(one) for one in records)
    return BenchRun(work, summarize(measured, min(work.clients, work.requests)), cpu_s)
