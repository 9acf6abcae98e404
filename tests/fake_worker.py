"""python -m tests.fake_worker FD: a worker whose backend echo is tests/fake_backend.py."""

from __future__ import annotations

import sys

from runner.worker.__main__ import main
from tests import fake_backend

if __name__ == "__main__":
    sys.modules["runner.backends.echo"] = fake_backend
    sys.exit(main())
