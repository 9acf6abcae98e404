"""What greedy clients cost a polite one: python -m tests.benchmarks.fairness MODEL.gguf.

Time to the first token of short chats with a key of their own: alone, beside 40 endless streams of
one key, and beside one endless stream of each of 40 keys. Quiet rounds stand between the others,
since the machine may be shared. Prints medians and their ratio to the quiet ones, whose target is
at most 2, and the tokens a second of all together.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from runner.server.keys import FILE_NAME, KeyRing
from tests.benchmarks import servers

STREAMS = 40
PAUSE_S = 1.0  # between the chats of the polite client
TARGET = 2.0


def chat(number: int, words: int, **more: Any) -> dict[str, Any]:
    """A chat whose prompt nobody has sent before."""
    text = " ".join(f"w{number}x{at}" for at in range(words))
    message = {"role": "user", "content": text}
    return {"model": servers.MODEL_NAME, "messages": [message], "stream": True, **more}


class Load:
    """Endless streams, one for each of keys, until stopped."""

    def __init__(self, url: str, keys: Sequence[str]) -> None:
        self.tokens = 0
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=(url, key, number), daemon=True)
            for number, key in enumerate(keys)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, url: str, key: str, number: int) -> None:
        body = chat(number, 20, ignore_eos=True, repeat_limit=0, temperature=1.0)
        with httpx.Client(base_url=url, timeout=None, trust_env=False) as client:
            while not self._stopped.is_set():
                with client.stream(
                    "POST", "/v1/chat/completions", json=body, headers=auth(key)
                ) as r:
                    for line in r.iter_lines():
                        self.tokens += line.startswith("data: {")
                        if self._stopped.is_set():
                            return
                if r.status_code != 200:
                    self._stopped.wait(1.0)

    def stop(self) -> None:
        """End the streams."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()


def auth(key: str) -> dict[str, str]:
    """The header for a key."""
    return {"Authorization": f"Bearer {key}"}


def first_token_s(url: str, key: str, number: int, words: int) -> float:
    """The time to the first token of one chat, which is read to its end."""
    began_s, first_s = time.perf_counter(), 0.0
    body = chat(1000 + number, words, max_tokens=16, ignore_eos=True)
    with httpx.stream(
        "POST", f"{url}/v1/chat/completions", json=body, headers=auth(key), timeout=300
    ) as response:
        if response.status_code != 200:
            raise SystemExit(f"{response.status_code}: {response.read().decode()}")
        for line in response.iter_lines():
            if not first_s and '"content":"' in line and '"content":""' not in line:
                first_s = time.perf_counter() - began_s
    return first_s


@contextmanager
def loaded(url: str, keys: Sequence[str]) -> Iterator[Load]:
    """The load of endless streams of keys, in its stride."""
    load = Load(url, keys)
    try:
        while load.tokens < 30 * len(keys):
            time.sleep(0.1)
        yield load
    finally:
        load.stop()


def main() -> int:
    """The command line; 0 when the target is met."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.fairness")
    parser.add_argument("model", type=Path)
    parser.add_argument("--words", type=int, default=60, help="of the polite client's prompts")
    parser.add_argument("--chats", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home, port = Path(folder), servers.free_port()
        with servers.running(servers.hearth(home, port), home) as side:
            servers.install_model(given.model, home, port)
            pid = side.pid
        del pid
        ring = KeyRing(home / FILE_NAME)
        keys = [ring.add(f"greedy{number}", ("inference",)) for number in range(STREAMS)]
        polite = ring.add("polite", ("inference",))
        with servers.running(servers.hearth(home, port), home):
            return measure(f"http://127.0.0.1:{port}", keys, polite, given)


def measure(url: str, keys: list[str], polite: str, given: argparse.Namespace) -> int:
    """Print all; 0 when the target is met."""
    found: dict[str, list[float]] = {"quiet": [], "one key": [], "40 keys": []}
    loads = {"one key": [keys[0]] * STREAMS, "40 keys": keys}
    number = 0

    def ask(name: str) -> None:
        nonlocal number
        for _ in range(given.chats):
            found[name].append(first_token_s(url, polite, number, given.words))
            number += 1
            time.sleep(PAUSE_S)

    first_token_s(url, polite, -1, given.words)  # loads the model
    for _ in range(given.rounds):
        for name, several in loads.items():
            ask("quiet")
            with loaded(url, several) as load:
                began_s, before = time.perf_counter(), load.tokens
                ask(name)
                rate = (load.tokens - before) / (time.perf_counter() - began_s)
            print(f"{name}: {rate:.1f} tokens/s of the greedy ones", flush=True)
    quiet_s = statistics.median(found["quiet"])
    worst = 0.0
    for name, times in found.items():
        middle, most = statistics.median(times), max(times)
        worst = max(worst, middle / quiet_s)
        ratio = middle / quiet_s
        print(f"{name:8} median {middle:.3f} s, most {most:.3f} s, {ratio:.2f} x quiet")
    return 0 if worst <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
