"""What the daemon's child processes, workers and jobs, have in common: how they start and end."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from typing import Any

from runner.programs import CHILD_OPTIONS, ROOT_FOLDER

INHERITED = (
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("GGML_VK_VISIBLE_DEVICES", "VK_DRIVER_FILES", "VK_ICD_FILENAMES"),  # Vulkan's
    "HSA_OVERRIDE_GFX_VERSION",  # a GPU that ROCm does not list, as one that it does
    "LD_LIBRARY_PATH",  # where CUDA's libraries are, on machines that set it
    "SYSTEMROOT",
    "HEARTH_SANDBOX",
)


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended: by a signal, or with an exit code."""

    exit_code: int | None
    signal_name: str | None

    def __str__(self) -> str:
        return self.signal_name or f"exit code {self.exit_code}"


def child_options() -> dict[str, Any]:
    """What every child is started with: the few variables that it needs, no keys and no tokens; no
    folder of anybody's; a session of its own."""
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {"env": environment, "cwd": ROOT_FOLDER, **CHILD_OPTIONS}


class StderrTail:
    """The last bytes that a process writes to stderr, kept as they come. reading: ends with it."""

    def __init__(self, process: asyncio.subprocess.Process, kept_bytes: int = 8192) -> None:
        self._kept = bytearray()
        self._kept_bytes = kept_bytes
        self.reading = asyncio.create_task(self._read(process))

    @property
    def text(self) -> str:
        """What there is, for the log."""
        return self._kept.decode("utf-8", "replace").strip()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while chunk := await process.stderr.read(4096):
            self._kept += chunk
            del self._kept[: -self._kept_bytes]


def exit_status(code: int) -> ExitStatus:
    """How a process with this return code ended."""
    if code >= 0:
        return ExitStatus(code, None)
    try:
        return ExitStatus(None, signal.Signals(-code).name)
    except ValueError:
        return ExitStatus(None, f"signal {-code}")
