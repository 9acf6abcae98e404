"""python -I -m runner.worker.rank RANK [SOCKET]: one of the processes of a model that several
compute, but the first (ranks.py), whose child it is.

Without SOCKET the first one is on another machine: stdin has a line of JSON with the host to listen
on, the key (rank_network.py), the path of the model here and the backend, and stdout says the port.

Has a part of the model and computes what the first one says. It ends with it, by the connection's
end, and with its parent, which the kernel sees to.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import threading
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from runner.errors import HearthError, ModelLoadFailed
from runner.types import BackendName, LoadPlan
from runner.worker.isolation import isolate
from runner.worker.json_codec import from_json
from runner.worker.plan_files import caches_of, files_of
from runner.worker.protocol import ExitCode
from runner.worker.rank_network import accepted, listening
from runner.worker.ranks import START_S, FirstProcess, backend_of, beat, send_reply
from runner.worker.sandbox import enter_sandbox

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Here:
    """What a process is told whose first one is on another machine."""

    host: str
    key: str
    path: str
    backend: BackendName


def main(arguments: list[str]) -> int:
    """The exit code."""
    isolate()
    rank = int(arguments[0])
    name = f"rank {rank}"
    logging.basicConfig(stream=sys.stderr, format=f"{name} %(levelname)s %(name)s: %(message)s")
    loaded = threading.Event()
    try:
        here = None if len(arguments) > 1 else Here(**json.loads(sys.stdin.readline()))
        connection = Connection(int(arguments[1])) if here is None else _awaited(here)
    except (OSError, TypeError, ValueError) as error:
        log.critical("the first process of the model is not there: %s", error)
        return ExitCode.PROTOCOL_ERROR
    try:
        _serve(rank, connection, here, loaded)
    except (EOFError, ConnectionResetError, BrokenPipeError, TimeoutError):
        return 0  # the first process is gone
    except Exception as error:
        log.critical("process %d of the model failed", rank, exc_info=True)
        if loaded.is_set():
            return ExitCode.ENGINE_FAILED
        failed = error if isinstance(error, HearthError) else ModelLoadFailed(f"{name}: {error}")
        send_reply(connection, {"error": failed.to_wire()})
        return ExitCode.LOAD_FAILED
    return 0


def _awaited(here: Here) -> Connection:
    """The connection of the first process. Raises TimeoutError, OSError."""
    importlib.import_module(f"runner.backends.{here.backend}")  # which takes long
    with listening(here.host) as server:
        print(server.getsockname()[1], flush=True)
        return accepted(server, here.key, START_S)


def _serve(rank: int, connection: Connection, here: Here | None, loaded: threading.Event) -> None:
    """Raises EOFError, OSError once the first process is gone, and what fails."""
    plan = from_json(LoadPlan, json.loads(connection.recv_bytes()))
    if here is not None:
        plan = replace(plan, path=here.path)
    backend = backend_of(plan)
    send_reply(connection, {"version": backend.version()})
    store = connection.recv_bytes().decode()  # the others are there
    network = () if here is None else (here.host,)
    joined: list[Any] = []
    enter_sandbox(
        files_of(plan),
        caches_of(plan),
        connect=lambda: joined.append(backend.join(plan, rank, store, *network)),
        keep_network=plan.gpu_layers > 0,
    )

    def report() -> None:
        loaded.set()
        send_reply(connection, {"loaded": True})
        threading.Thread(target=beat, args=(connection,), name="beat", daemon=True).start()

    leader = FirstProcess(connection, far=here is not None)
    backend.follow(plan, joined[0], leader, report)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    os._exit(code)  # native code may still be computing: the system takes everything back
