"""`python -P -m cli.service.launched FILE`: becomes the daemon, with the variables and the log that
the file names; for a service manager that can set neither. See cli.service.taskscheduler."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

from cli.private_files import private_files


def main(path: str) -> None:
    """Returns when the daemon ends. Raises OSError."""
    told = json.loads(Path(path).read_text(encoding="utf-8"))
    os.environ.update(told["environment"])
    with private_files():
        log = Path(told["log"])
        log.parent.mkdir(parents=True, exist_ok=True)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (1, 2):  # a Python without a window has none
        os.dup2(output, descriptor)
    sys.stdout = os.fdopen(1, "w", 1, "utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, "utf-8", closefd=False)
    sys.argv = [told["module"]]
    runpy.run_module(told["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1])
