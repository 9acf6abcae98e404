"""python -I -m runner.worker.rank RANK SOCKET STORE: one of the processes of a model that several
compute, but the first (ranks.py), whose child it is.

Has a part of the model and computes what the first one says. It ends with it: the kernel sees to
that, and the connection's end.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from runner.errors import HearthError, ModelLoadFailed
from runner.types import LoadPlan
from runner.worker.isolation import isolate
from runner.worker.json_codec import from_json
from runner.worker.plan_files import caches_of, files_of
from runner.worker.protocol import ExitCode
from runner.worker.ranks import FirstProcess, backend_of, beat, send_reply, started
from runner.worker.sandbox import enter_sandbox

log = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """The exit code."""
    isolate()
    rank, connection, store_path = started(arguments)
    name = f"rank {rank}"
    logging.basicConfig(stream=sys.stderr, format=f"{name} %(levelname)s %(name)s: %(message)s")
    loaded = threading.Event()
    try:
        _serve(rank, connection, store_path, loaded)
    except (EOFError, ConnectionResetError, BrokenPipeError):
        return 0  # the first process is gone
    except Exception as error:
        log.critical("process %d of the model failed", rank, exc_info=True)
        if loaded.is_set():
            return ExitCode.ENGINE_FAILED
        failed = error if isinstance(error, HearthError) else ModelLoadFailed(f"{name}: {error}")
        send_reply(connection, {"error": failed.to_wire()})
        return ExitCode.LOAD_FAILED
    return 0


def _serve(rank: int, connection: Connection, store_path: str, loaded: threading.Event) -> None:
    """Raises EOFError, OSError once the first process is gone, and what fails."""
    plan = from_json(LoadPlan, json.loads(connection.recv_bytes()))
    backend = backend_of(plan)
    send_reply(connection, {"version": backend.version()})
    connection.recv_bytes()  # the others are there
    joined: list[Any] = []
    enter_sandbox(
        files_of(plan),
        caches_of(plan),
        connect=lambda: joined.append(backend.join(plan, rank, store_path)),
        keep_network=plan.gpu_layers > 0,
    )

    def report() -> None:
        loaded.set()
        send_reply(connection, {"loaded": True})
        threading.Thread(target=beat, args=(connection,), name="beat", daemon=True).start()

    backend.follow(plan, joined[0], FirstProcess(connection), report)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    os._exit(code)  # native code may still be computing: the system takes everything back
