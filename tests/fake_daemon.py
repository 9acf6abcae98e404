"""python -m tests.fake_daemon FD [MODULE]: daemons whose workers are those of tests/fake_worker.py,
and such workers alone, each a child by fork of this process; see tests/daemon_processes.py.

DATE_FILE: a file with the seconds by which the date is off, which a test may change meanwhile.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import time
from typing import NoReturn

from runner.models import worker_process
from runner.server.daemon import main
from tests import fake_worker, forked_children
from tests.attack.loop_times import watch_if_asked
from tests.daemon_processes import Forker


def fake_worker_command(*arguments: str) -> list[str]:
    """See worker_process.worker_command."""
    return [sys.executable, "-I", "-m", "tests.fake_worker", *arguments]


def set_date(path: str) -> None:
    """Let the date be what the file says."""
    real = time.time

    def date() -> float:
        with open(path) as file:
            return real() + float(file.read() or 0)

    time.time = date


def run() -> int:
    """The daemon, in a process whose environment is set. Its exit code."""
    worker_process.worker_command = fake_worker_command
    if "DATE_FILE" in os.environ:
        set_date(os.environ["DATE_FILE"])
    watch_if_asked()
    forked_children.fork_children()
    return main()


def end(code: int) -> NoReturn:
    """End as sys.exit does, with the threads and with what is registered for the end, but without
    taking all modules down, which touches every page that is shared with the parent."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    forked_children.preload(sys.argv[2:])
    gc.freeze()  # children share what is never collected
    forker = Forker(int(sys.argv[1]))
    if forker.run():
        end(run() if forker.worker_fd is None else fake_worker.run(forker.worker_fd))
