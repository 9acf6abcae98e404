"""Heavy work in a child process of the daemon: conversion, quantization, measuring.

Owns the process: its start, its progress lines, its death. Knows nothing of what the work is;
the child's end is runner/jobs/job.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from runner.errors import InternalError, WorkerCrashed, from_wire
from runner.models.worker_process import (
    ExitStatus,
    exit_status,
    own_process_group,
    worker_environment,
)

log = logging.getLogger("hearth.job")

_LINE_BYTES = 1 << 20
_END_GRACE_S = 5.0
_STDERR_KEPT_BYTES = 8192


async def run_job(module: str, job: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
    """Do the job in a process of its own, `python -I -m module`. Gives its progress, objects of
    status, completed and total, and at last {"done": result}.

    Closing the iterator, or cancelling its reader, ends the process before it returns. Raises
    the child's error, WorkerCrashed when it died, OSError when it cannot be started.
    """
    process = await _spawn(module)
    assert process.stderr is not None
    tail = asyncio.create_task(_tail(process.stderr))
    try:
        await _hand_over(process, job)
        async for line in _lines(process):
            if "error" in line:
                raise from_wire(line["error"])
            yield line
            if "done" in line:
                return
        raise _crash(module, exit_status(await process.wait()))
    finally:
        await _end(process)
        said = await tail
        if said:
            log.info("%s said: %s", module, said)


async def _spawn(module: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=worker_environment(),
        cwd="/",
        limit=_LINE_BYTES,
        **own_process_group(),
    )


async def _hand_over(process: asyncio.subprocess.Process, job: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # told by what follows
        process.stdin.write(json.dumps(job).encode())
        await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()


async def _lines(process: asyncio.subprocess.Process) -> AsyncIterator[dict[str, Any]]:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        if line.endswith(b"\n"):  # a line without an end was cut by the process's death
            yield json.loads(line)


def _crash(module: str, ending: ExitStatus) -> InternalError:
    what = module.rpartition(".")[2]
    details = {"signal": ending.signal_name, "exit_code": ending.exit_code}
    return WorkerCrashed(f"{what} ended by {ending}; the daemon's log tells more", **details)


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM to a process that still runs, SIGKILL to one that stays. Shielded: a reader that
    is cancelled twice must not leave it behind."""
    ending = asyncio.ensure_future(_terminate(process))
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await ending
        raise


async def _terminate(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _END_GRACE_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _tail(stream: asyncio.StreamReader) -> str:
    kept = bytearray()
    while chunk := await stream.read(4096):
        kept += chunk
        del kept[:-_STDERR_KEPT_BYTES]
    return kept.decode("utf-8", "replace").strip()
