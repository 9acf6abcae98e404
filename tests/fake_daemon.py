"""python -m tests.fake_daemon: a daemon whose workers are those of tests/fake_worker.py.

DATE_FILE: a file with the seconds by which the date is off, which a test may change meanwhile.
"""

from __future__ import annotations

import os
import sys
import time

from runner.models import worker_process
from runner.server.daemon import main
from tests.attack.loop_times import watch_if_asked


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


if __name__ == "__main__":
    worker_process.worker_command = fake_worker_command
    if "DATE_FILE" in os.environ:
        set_date(os.environ["DATE_FILE"])
    watch_if_asked()
    sys.exit(main())
