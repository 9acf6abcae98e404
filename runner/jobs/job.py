"""The child's end of a job: heavy work in a process of its own, for the daemon.

The job is one JSON object on stdin. On stdout stands one JSON object per line: progress
({"status", "completed", "total"}, and "state"), then {"done": result} or {"error": ...} as
runner.errors describes it. What native code prints goes to stderr. Knows nothing of the work.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

from registry.atomic import fault_of
from runner.errors import HearthError, InsufficientMemory, InternalError
from runner.leaf_errors import as_hearth_error
from runner.worker.isolation import isolate
from runner.worker.sandbox import enter_sandbox


class Report(Protocol):
    """Tells how far a job is. state: what goes on from here when the job is given it."""

    def __call__(
        self, status: str, completed: int, total: int, state: Mapping[str, Any] | None = None
    ) -> None: ...


JobFunction = Callable[[Mapping[str, Any], Report], Mapping[str, Any]]

_READ = ("model", "adapters", "text", "source", "config", "imatrix", "base", "files", "parts")
_REPORT_INTERVAL_S = 0.1


def main(work: JobFunction) -> None:
    """Do the job that stdin describes and write what becomes of it. Returns after an error too:
    the last line tells it. SIGTERM raises SystemExit in the work, which removes what it began."""
    isolate()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    output = _own_stdout()
    job: dict[str, Any] = {}
    try:
        job = json.loads(sys.stdin.buffer.read())
        enter_sandbox(*_folders(job))
        line: dict[str, Any] = {"done": dict(work(job, Reporter(output)))}
    except Exception as error:  # every fault becomes the last line
        line = {"error": told(error, Path(job.get("target", "."))).to_wire()}
    _write(output, line)
    output.close()


class Reporter:
    """Writes progress: each new status at once, its numbers ten times a second, the last one
    always."""

    def __init__(self, output: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._output = output
        self._clock = clock
        self._status: str | None = None
        self._written_at = 0.0

    def __call__(
        self, status: str, completed: int, total: int, state: Mapping[str, Any] | None = None
    ) -> None:
        """Tell how far it is. completed and total: any unit, the same for one status."""
        now = self._clock()
        due = status != self._status or completed >= total
        if not due and now - self._written_at < _REPORT_INTERVAL_S:
            return
        self._status, self._written_at = status, now
        line = {"status": status, "completed": completed, "total": total}
        _write(self._output, line if state is None else {**line, "state": state})


def told(error: Exception, target: Path) -> HearthError:
    """The error as the daemon shall see it; one that nobody foresaw leaves its traceback on
    stderr. target: the file that the job writes."""
    if isinstance(error, MemoryError):
        return InsufficientMemory("out of memory; close other programs")
    if isinstance(error, OSError) and error.errno is not None:
        traceback.print_exception(error, file=sys.stderr)
        error = fault_of(error, "write the model", target.parent)
    known = as_hearth_error(error)
    if known is not None:
        return known
    traceback.print_exception(error, file=sys.stderr)
    return InternalError(
        f"internal error ({type(error).__name__}): please report it with the daemon's log"
    )


def _folders(job: Mapping[str, Any]) -> tuple[list[str], list[Path]]:
    """The files that a job reads, and where it writes."""
    read = [*_paths([job[name] for name in _READ if name in job])]
    return read, [Path(job["target"]).parent] if "target" in job else []


def _paths(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _paths(item)


def _own_stdout() -> TextIO:
    """The pipe to the daemon; file descriptor 1 becomes stderr, for native code that prints."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(kept, "w", encoding="utf-8")


def _write(output: TextIO, line: Mapping[str, Any]) -> None:
    output.write(json.dumps(line) + "\n")
    output.flush()
