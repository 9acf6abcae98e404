"""Heavy work in a child process of the daemon: conversion, quantization, evaluation.

Owns the process: its start, its progress, its end. Knows nothing of what the work is; the child's
side is runner/jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

from registry.progress import Progress
from runner.cancellation import whole
from runner.child_process import ExitStatus, StderrTail, child_options, exit_status
from runner.errors import InternalError, WorkerCrashed, from_wire
from runner.library.progress import ReportProgress

log = logging.getLogger("hearth.job")

_MAX_LINE_BYTES = 1 << 20
_END_GRACE_S = 5.0


async def run_job(
    name: str, job: Mapping[str, Any], report: ReportProgress, unit: str | None = None
) -> dict[str, Any]:
    """Do a job in a process of its own, `python -I -m runner.jobs name`; returns its result. unit:
    what its progress counts, None: bytes.

    Cancelling the caller ends the process before this returns. Raises the child's error,
    WorkerCrashed when it died, OSError when it cannot be started.
    """
    process = await _spawn(name)
    stderr = StderrTail(process)
    try:
        await _hand_over(process, job)
        async for line in _lines(process):
            if "error" in line:
                raise from_wire(line["error"])
            if "done" in line:
                result: dict[str, Any] = line["done"]
                return result
            counts = line["completed"], line["total"]
            await report(Progress(line["status"], *counts, unit, state=line.get("state")))
        raise _crash(name, exit_status(await process.wait()))
    finally:
        await whole(_end(process))
        await stderr.reading
        if stderr.text:
            log.info("%s wrote: %s", name, stderr.text)


async def _spawn(name: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "runner.jobs", name),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_MAX_LINE_BYTES,
        **child_options(),
    )


async def _hand_over(process: asyncio.subprocess.Process, job: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its exit status tells why
        process.stdin.write(json.dumps(job).encode())
        await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()


async def _lines(process: asyncio.subprocess.Process) -> AsyncIterator[dict[str, Any]]:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        if line.endswith(b"\n"):  # a line without an end was cut by the process's death
            yield json.loads(line)


def _crash(name: str, status: ExitStatus) -> InternalError:
    details = {"signal": status.signal_name, "exit_code": status.exit_code}
    return WorkerCrashed(f"the {name} job ended with {status}; see the daemon's log", **details)


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM to a process that still runs, SIGKILL to one that stays."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _END_GRACE_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
