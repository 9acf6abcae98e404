"""A process that forks children which work on a store and kill themselves at a chosen system
call: `python -m tests.store_zygote`.

Each line on stdin is a job, a JSON object; the answer on stdout is how the child ended, its exit
status (0: done, 1: refused with an error of ours, -9: killed). Forking costs milliseconds where a
start of Python with all that the work needs costs half a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from modelfile.errors import ModelfileError
from registry.errors import ModelMissing, RegistryError
from registry.gc import GcOptions, collect
from registry.names import Name
from registry.store import Store
from tests.store_operations import Place, install, model_id, transfer, work
from tests.unit.registry.faulty_disk import EVERY_CALL, EVERYWHERE

NOW = GcOptions(grace_s=0.0, partial_keep_s=1e9)
WATCHER = "watcher"  # it only reads, so its calls are not counted


class DeadlyDisk:
    """os, but the call number kill_at of the counted functions is the last thing that happens:
    before it, after it, or in the middle of a write."""

    def __init__(self, kill_at: int) -> None:
        self._lock = threading.Lock()
        self._kill_at = kill_at
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in EVERY_CALL:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                is_work = threading.current_thread().name != WATCHER
                self.calls += is_work
                if is_work and self.calls == self._kill_at:
                    self._die(name, real, args, kwargs)
            return real(*args, **kwargs)

        return call

    def _die(self, name: str, real: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        moment = self._kill_at % 3
        if moment == 1 and name in ("write", "pwrite"):
            real(args[0], memoryview(args[1])[: len(args[1]) // 2], *args[2:])
        elif moment == 2:
            with contextlib.suppress(OSError):
                real(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)


def run(job: Mapping[str, Any]) -> None:
    """Do a job in this process."""
    place = Place(Path(job["root"]), job["address"])
    disk = DeadlyDisk(job["kill_at"])
    for module in EVERYWHERE:
        module.os = disk  # type: ignore[attr-defined]
    store = Store.open(place.root)
    if job["kind"] == "history":
        History(store, place, job["seed"]).run()
    else:
        work(job["kind"], store, place)
    store.close()
    print(disk.calls, file=sys.stderr, flush=True)


class History:
    """Random work of several threads on the same few names, each step noted when it begins and
    when it is acknowledged."""

    NAMES = ("a", "b", "user/c:q4")
    THREADS = 3
    STEPS = 12

    def __init__(self, store: Store, place: Place, seed: int) -> None:
        self._store = store
        self._place = place
        self._seed = seed
        self._lock = threading.Lock()
        self._log = os.open(place.root.parent / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._count = 0

    def run(self) -> None:
        """All threads to their ends."""
        working = [threading.Thread(target=self._work, args=(n,)) for n in range(self.THREADS)]
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(done,), name=WATCHER)
        for thread in (*working, watcher):
            thread.start()
        for thread in working:
            thread.join()
        done.set()
        watcher.join()

    def _watch(self, done: threading.Event) -> None:
        """Nobody may ever see half a model."""
        while not done.wait(0.001):
            for model in self._store.models():
                if model.fault is not None:
                    self._note("half", str(model.name), model.fault)

    def _work(self, number: int) -> None:
        choice = random.Random(self._seed * 100 + number)
        for _ in range(self.STEPS):
            kind = choice.choice(("create", "create", "pull", "copy", "delete", "gc"))
            name, other = choice.choice(self.NAMES), choice.choice(self.NAMES)
            try:
                self._step(kind, name, other, choice.randrange(1_000_000))
            except (ModelMissing, RegistryError) as error:
                self._note("refused", kind, error.message)

    def _step(self, kind: str, name: str, other: str, salt: int) -> None:
        store, full = self._store, Name.parse(name)
        if kind == "create":
            config, content = b'{"n":%d}' % salt, b"weights %d" % (salt % 5) * 500
            step = self._begin("write", str(full), str(model_id(content, config)))
            self._end(step, str(install(store, full, content, config)))
        elif kind == "copy":
            step = self._begin("write", str(full), "?")
            self._end(step, str(store.copy(Name.parse(other), full).digest))
        elif kind == "delete":
            step = self._begin("delete", str(full), "")
            store.delete(full)
            self._end(step, "")
        elif kind == "gc":
            collect(store, NOW)
        else:
            self._pull()

    def _pull(self) -> None:
        import asyncio

        step = self._begin("write", str(self._place.pulled), "pulled")
        asyncio.run(transfer("pull", self._store, self._place, streams=1))
        self._end(step, "pulled")

    def _begin(self, kind: str, name: str, value: str) -> int:
        with self._lock:
            self._count += 1
            count = self._count
            self._write("begin", count, kind, name, value)
            return count

    def _end(self, step: int, value: str) -> None:
        with self._lock:
            self._write("ack", step, value)

    def _note(self, *fields: str) -> None:
        with self._lock:
            self._write("note", *fields)

    def _write(self, *fields: object) -> None:
        os.write(self._log, json.dumps(fields).encode() + b"\n")


def main() -> None:
    """Answer jobs until stdin ends."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os._exit(_child(json.loads(line)))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _child(job: Mapping[str, Any]) -> int:
    try:
        run(job)
    except (RegistryError, ModelfileError):
        return 1
    except BaseException:
        traceback.print_exc()
        return 2
    return 0


class Zygote:
    """The process, for tests."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.store_zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        )

    def run(self, kind: str, place: Place, kill_at: int = 0, seed: int = 0) -> int:
        """Do a job; gives the exit status. kill_at 0: the child lives."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"kind": kind, "root": str(place.root), "address": place.address,
               "kill_at": kill_at, "seed": seed}  # fmt: skip
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)
        self._errors.close()


@contextlib.contextmanager
def zygote(folder: Path) -> Iterator[Zygote]:
    """A zygote whose children's errors go to a file in folder."""
    process = Zygote(folder / "errors")
    try:
        yield process
    finally:
        process.close()


if __name__ == "__main__":
    main()
