"""How programs are started: as children of this process, apart from it, or in its place."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

ROOT_FOLDER = os.path.abspath(os.sep)  # nobody's

if sys.platform == "win32":
    import subprocess

    from runner.job_object import join_job

    _QUIET = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
    CHILD_OPTIONS: dict[str, Any] = {"creationflags": _QUIET}
    DETACHED_OPTIONS: dict[str, Any] = {
        "creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.DETACHED_PROCESS
    }

    def become(words: Sequence[str]) -> NoReturn:
        """Run another program in the place of this one: os.execvp would give the terminal back at
        once. Raises OSError."""
        sys.exit(subprocess.call(words))

    def end_children_with_this() -> None:
        """Let the system end all that this process starts when it ends. Raises OSError."""
        join_job()
else:
    # A Ctrl-C in the terminal reaches no child: the daemon drains its streams. No process_group,
    # which uvloop does not know: Ray runs the replicas of a cluster in it.
    CHILD_OPTIONS: dict[str, Any] = {"start_new_session": True}
    DETACHED_OPTIONS: dict[str, Any] = {"start_new_session": True}

    def become(words: Sequence[str]) -> NoReturn:
        """Run another program in the place of this one. Raises OSError."""
        os.execvp(words[0], [*words])

    def end_children_with_this() -> None:
        """Nothing: they ask the kernel for it themselves (runner.worker.isolation)."""
