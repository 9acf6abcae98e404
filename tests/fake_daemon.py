"""python -m tests.fake_daemon: a daemon whose workers are those of tests/fake_worker.py."""

from __future__ import annotations

import sys

from runner.models import worker_process
from runner.server.daemon import main


def fake_worker_command(*arguments: str) -> list[str]:
    """See worker_process.worker_command."""
    return [sys.executable, "-I", "-m", "tests.fake_worker", *arguments]


if __name__ == "__main__":
    worker_process.worker_command = fake_worker_command
    sys.exit(main())
