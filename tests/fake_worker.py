"""python -m tests.fake_worker FD: a worker whose backend echo is tests/fake_backend.py."""

from __future__ import annotations

import sys

from runner.worker.__main__ import main
from tests import fake_backend


def run(*sockets: int) -> int:
    """Serve on these sockets, or those of sys.argv. The exit code."""
    sys.modules["runner.backends.echo"] = fake_backend
    if sockets:
        sys.argv = ["fake_worker", *map(str, sockets)]
    return main()


if __name__ == "__main__":
    sys.exit(run())
