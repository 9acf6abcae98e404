"""What a worker process gives up at its start. Knows nothing of models."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from runner.process_limits import set_limits

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
# With 0 a handler of dumps (systemd-coredump, apport) is started all the same: core(5).
_NO_CORE_BYTES = 1


def isolate() -> None:
    """Die with the parent, leave no core dumps (they hold prompts), never gain privileges.
    Where the system has no such thing it is left out. A parent that is dead already ends the
    process now."""
    parent = os.getppid()
    set_limits("CORE", _NO_CORE_BYTES, _NO_CORE_BYTES)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)
