"""A cluster of several nodes on this machine, each with its own home, and a daemon at its head.

Processes are ended by their ids only. Nothing here imports Ray.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

START_S = 400.0
NODE = "cluster-node.json"


def wait_for(condition: Callable[[], Any], what: str, limit_s: float = 120.0) -> Any:
    """What condition gives once it is true. Raises AssertionError after limit_s."""
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        if found := condition():
            return found
        threading.Event().wait(0.05)
    raise AssertionError(f"not in {limit_s:g} s: {what}")


@dataclass(slots=True)
class Node:
    """A node: its home, and Ray's processes of it."""

    home: Path

    @property
    def state(self) -> dict[str, Any]:
        """What hearth keeps of it."""
        found: dict[str, Any] = json.loads((self.home / "state" / NODE).read_text())
        return found

    def processes(self, name: str = "") -> list[psutil.Process]:
        """Those of Ray on this node whose names contain name."""
        children = psutil.Process(self.state["pid"]).children(recursive=True)
        return [
            each for each in children if name in each.name() or name in " ".join(each.cmdline())
        ]

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`hearth cluster` on this node."""
        clean = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        clean |= environment
        return subprocess.run(
            [sys.executable, "-P", "-m", "runner.cluster.node", *arguments],
            env=clean | {"HEARTH_HOME": str(self.home), "HEARTH_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=START_S,
        )


@dataclass(slots=True)
class Machines:
    """The nodes, the first being the head, and the daemon's address and token."""

    nodes: list[Node]
    url: str = ""
    token: str = ""

    @classmethod
    def start(cls, root: Path, count: int, cpus: int = 4) -> Machines:
        """Start so many nodes. Call stop in the end."""
        machines = cls([])
        for number in range(count):
            machines.add(root / f"node-{number}", cpus)
        return machines

    def add(self, home: Path, cpus: int = 4) -> Node:
        """One more node."""
        home.mkdir(parents=True, exist_ok=True)
        where = ["--head", "--port", "0"]
        if self.nodes:
            head = self.nodes[0]
            shutil.copy(head.home / "cluster-token", home)
            where = ["--address", head.state["address"]]
        node = Node(home)
        small = ["--ip", "127.0.0.1", "--cpus", str(cpus), "--object-store-mb", "80"]
        ran = node.run("start", *where, *small)
        assert ran.returncode == 0, ran.stderr
        self.nodes.append(node)
        return node

    def stop(self) -> None:
        """End all nodes."""
        for node in reversed(self.nodes):
            if (node.home / "state" / NODE).is_file():
                node.run("stop")

    def client(self, timeout_s: float = START_S) -> httpx.Client:
        """A client of the daemon; close it."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s, trust_env=False)

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """One request."""
        with self.client() as client:
            return client.post(path, json=body)

    def deploy(self, model: str, replicas: int, **more: Any) -> None:
        """Deploy, and have a session with each replica."""
        counts = {"min_replicas": replicas, "max_replicas": replicas}
        answer = self.post("/api/cluster/deploy", {"model": model, **counts, **more})
        assert answer.status_code == 200, answer.text
        self.warm(model, replicas)

    def warm(self, model: str, replicas: int) -> None:
        """Wait until the daemon has sessions with so many replicas that are healthy."""
        assert self.chat(model, "hello", max_tokens=1).status_code == 200
        wait_for(
            lambda: sum(each["sessions"] > 0 for each in self.replicas(model)) >= replicas,
            f"{replicas} sessions",
            300.0,
        )

    def status(self, model: str) -> dict[str, Any] | None:
        """What the daemon knows of a deployment, if it knows one."""
        with self.client() as client:
            told = client.get("/api/cluster").json()
        found: dict[str, Any] | None = told["deployments"].get(model)
        return found

    def replicas(self, model: str) -> list[dict[str, Any]]:
        """What the replicas of a model say."""
        found: list[dict[str, Any]] = (self.status(model) or {}).get("replicas", [])
        return found

    def chat(self, model: str, text: str, **more: Any) -> httpx.Response:
        """A whole answer."""
        message = {"role": "user", "content": text}
        return self.post("/v1/chat/completions", {"model": model, "messages": [message], **more})


@dataclass(slots=True)
class Stream:
    """A streamed answer, read by a thread. text so far; error: of the last event; ended_s: by the
    monotonic clock."""

    machines: Machines
    model: str
    prompt: str
    max_tokens: int = 1500
    text: str = ""
    error: dict[str, Any] | None = None
    status: int = 0
    ended_s: float | None = None
    done: bool = False  # [DONE] came
    first: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> Stream:
        """Begin to read."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def join(self, limit_s: float = 120.0) -> Stream:
        """Wait for the end."""
        assert self._thread is not None
        self._thread.join(limit_s)
        assert not self._thread.is_alive(), "the stream does not end"
        return self

    def _read(self) -> None:
        try:
            self._ask()
        except httpx.TransportError as error:
            self.error = {"code": "connection_lost", "message": str(error)}
        self.ended_s = time.monotonic()
        self.first.set()

    def _ask(self) -> None:
        message = {"role": "user", "content": self.prompt}
        body = {"model": self.model, "messages": [message], "stream": True,
                "max_tokens": self.max_tokens, "ignore_eos": True, "seed": 1}  # fmt: skip
        with (
            self.machines.client() as client,
            client.stream("POST", "/v1/chat/completions", json=body) as answer,
        ):
            self.status = answer.status_code
            if self.status != 200:
                self.error = json.loads(answer.read())["error"]
            for event in self._events(answer):
                self.error = event.get("error", self.error)
                for choice in event.get("choices", ()):
                    self.text += choice["delta"].get("content") or ""
                    if self.text:
                        self.first.set()

    def _events(self, answer: httpx.Response) -> Iterator[dict[str, Any]]:
        if answer.status_code != 200:
            return
        for line in answer.iter_lines():
            if line == "data: [DONE]":
                self.done = True
            elif line.startswith("data: "):
                yield json.loads(line[6:])


def send(pids: list[int], number: signal.Signals) -> float:
    """Send a signal to processes; when, by the monotonic clock."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return time.monotonic()
