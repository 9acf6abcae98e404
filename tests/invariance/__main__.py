"""`python -m tests.invariance [--first 0] [--count 10000]`: seeded requests to published weights
must have the same answers alone and among others, down to the bits of the log-probabilities.

A part of the requests is answered one by one first, each with a prompt cache of its own; then all
of them in another order by a random number of clients at once, while others cancel streams, a
worker is killed and the daemon too. Done numbers are kept in build/invariance by commit, so that
the next run goes on. Models that were not fetched are left out aloud. Exit status 1: an answer
differed; 2: nothing could be run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from random import Random

import httpx
import psutil

from tests.conftest import RunningDaemon, daemon_process
from tests.invariance.cases import MODELS, Case, case, fingerprint
from tests.real.models import path_of

MAX_CLIENTS = 24
RETRIES, RETRY_S = 240, 0.5  # two minutes: a model that lost its worker is loaded again
REPOSITORY = Path(__file__).parents[2]


class Server:
    """A daemon with the models, which may be killed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._daemon = self._started()

    def ask(self, each: Case, **fields: str) -> dict[str, object]:
        """The answer, whatever happens to worker and daemon meanwhile. Raises AssertionError for a
        refusal, and when none comes."""
        body = {**each.body, **fields}
        for _ in range(RETRIES):
            try:
                with self._client() as client:
                    reply = client.post("/v1/completions", json=body)
            except httpx.TransportError:
                reply = None
            if reply is not None and reply.status_code == 200:
                answer: dict[str, object] = reply.json()
                return answer
            assert reply is None or reply.status_code >= 500, reply.text
            threading.Event().wait(RETRY_S)
        raise AssertionError(f"no answer to {each.number}")

    def begin_and_leave(self, each: Case, events: int) -> None:
        """Read some events of a stream and go away."""
        try:
            with (
                self._client() as client,
                client.stream("POST", "/v1/completions", json={**each.body, "stream": True}) as got,
            ):
                for _, _ in zip(range(events), got.iter_lines(), strict=False):
                    pass
        except httpx.TransportError:
            pass

    def kill_worker(self, rng: Random) -> None:
        """End one of the workers, if there is one."""
        if workers := psutil.Process(self._daemon.pid).children():
            os.kill(rng.choice(workers).pid, signal.SIGKILL)

    def restart(self) -> None:
        """End the daemon and start another."""
        with self._lock:
            self._daemon.process.kill()
            self._daemon.wait()
            self._daemon = self._started()

    def stop(self) -> None:
        """End it in peace."""
        self._daemon.stop()

    def install(self, name: str) -> None:
        """Create a model of published weights."""
        file = path_of(name)
        with file.open("rb") as content:
            digest = f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"
            content.seek(0)
            with self._client() as client:
                client.post(f"/api/blobs/{digest}", content=content).raise_for_status()
                body = {"model": name, "files": {file.name: digest}, "stream": False}
                client.post("/api/create", json=body).raise_for_status()

    def _client(self) -> httpx.Client:
        with self._lock:
            return self._daemon.client(600)

    def _started(self) -> RunningDaemon:
        daemon = RunningDaemon(daemon_process(self._home, {"HEARTH_KEEP_ALIVE": "-1"}), self._home)
        daemon.await_start()
        return daemon


def run_part(server: Server, part: Sequence[Case], rng: Random) -> dict[int, tuple[str, str]]:
    """The fingerprints of each request's answer, alone and among others."""
    alone = {
        each.number: fingerprint(server.ask(each, cache_salt=f"alone {each.number}"))
        for each in part
    }
    among: dict[int, str] = {}
    order = rng.sample(part, len(part))
    strangers = [case(-rng.randrange(1, 10**6)) for _ in part[::4]]
    strangers = [each for each in strangers if each.model in {one.model for one in part}]
    with ThreadPoolExecutor(rng.randint(2, MAX_CLIENTS)) as clients, ThreadPoolExecutor(3) as left:
        asked = {clients.submit(server.ask, each): each for each in order}
        for each in strangers:
            left.submit(server.begin_and_leave, each, rng.randint(0, 20))
        killed_at, restarted_at = len(part) // 3, len(part) * 2 // 3
        for count, done in enumerate(as_completed(asked)):
            among[asked[done].number] = fingerprint(done.result())
            if count == killed_at:
                server.kill_worker(rng)
            if count == restarted_at:
                server.restart()
    return {number: (alone[number], among[number]) for number in alone}


def commit() -> str:
    """What is checked out, with a mark where files differ from it."""
    words = ("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    return subprocess.run(
        words, cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not done yet, and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.invariance")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--part", type=int, default=100)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    given = parser.parse_args(arguments)
    models = [name for name in given.models if path_of(name).is_file()]
    for name in set(given.models) - set(models):
        print(f"left out: {path_of(name)} is missing: make real-models MODELS={name}")
    journal = REPOSITORY / "build" / "invariance" / f"{commit()}.jsonl"
    found = _read(journal)
    numbers = range(given.first, given.first + given.count)
    open_cases = [case(each) for each in numbers if each not in found]
    open_cases = [each for each in open_cases if each.model in models]
    if open_cases:
        _run(open_cases, models, given.part, journal, found)
    return _tell({number: found[number] for number in numbers if number in found}, journal)


def _run(
    cases: Sequence[Case],
    models: Iterable[str],
    size: int,
    journal: Path,
    found: dict[int, tuple[str, str]],
) -> None:
    journal.parent.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp()
    server = Server(Path(folder))
    try:
        for name in models:
            server.install(name)
        for at in range(0, len(cases), size):
            part = cases[at : at + size]
            of_part = run_part(server, part, Random(f"part {part[0].number}"))
            with journal.open("a") as file:
                file.writelines(f"{json.dumps([n, *both])}\n" for n, both in of_part.items())
            found |= of_part
            wrong = sum(one != other for one, other in of_part.values())
            print(f"{part[0].number} to {part[-1].number}: {len(part)}, {wrong} differ", flush=True)
    finally:
        server.stop()
        shutil.rmtree(folder)


def _read(journal: Path) -> dict[int, tuple[str, str]]:
    if not journal.exists():
        return {}
    rows = (json.loads(line) for line in journal.read_text().splitlines())
    return {number: (alone, among) for number, alone, among in rows}


def _tell(found: dict[int, tuple[str, str]], journal: Path) -> int:
    wrong = [number for number, (alone, among) in found.items() if alone != among]
    counts = Counter(case(number).model for number in found)
    shown = ", ".join(f"{name} {counts[name]}" for name in MODELS)
    print(f"{journal.stem}: {len(found)} requests ({shown}), {len(wrong)} differ {wrong[:20]}")
    return 1 if wrong else 0 if found else 2


if __name__ == "__main__":
    sys.exit(main())
