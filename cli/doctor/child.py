"""Runs modules of hearth in a separate process, which may crash or hang."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

TIMEOUT_S = 45.0


class ChildFailed(Exception):
    """There is no answer; the message says why."""


def ask(*arguments: str) -> dict[str, Any]:
    """The JSON object that `python -m arguments` prints. Raises ChildFailed."""
    command = (sys.executable, "-P", "-m", *arguments)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            cwd=Path.cwd().anchor,
        )
    except subprocess.TimeoutExpired:
        raise ChildFailed(f"no answer within {TIMEOUT_S:g} s") from None
    if done.returncode < 0:
        raise ChildFailed(f"crashed by {signal.Signals(-done.returncode).name}")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ChildFailed(lines[-1] if lines else f"exit code {done.returncode}") from None
    return dict(answer)
