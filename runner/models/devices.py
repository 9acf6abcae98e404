"""The devices that backends can put layers on, as a child process has found them, and what of their
memory is free now.

Owns the list and its keeping: what a build of llama.cpp finds on a machine does not change until
the next boot, and to ask costs a process. Sizes in bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from registry.atomic import read_regular, write_private
from registry.errors import RegistryError
from runner.child_process import INHERITED, child_options
from runner.models.system_memory import free_of_pci, gpu_memory
from runner.models.worker_process import worker_command

log = logging.getLogger("hearth.models")

_FILE = "devices.json"
_MAX_FILE_BYTES = 1 << 20
_PROBE_TIMEOUT_S = 60.0
_PACKAGES = ("llama_cpp", "torch")
_OF_PROCESSOR = re.compile(
    r"(lib)?ggml(-base|-cpu[\w-]*|-blas)?\."
)  # ggml's libraries without devices


@dataclass(frozen=True, slots=True)
class Device:
    """One device, under the name that its backend has for it. id: its address on the PCI bus, where
    that is known, by which two backends mean the same device. shared: its memory is the machine's,
    as that of an integrated GPU is. splits_rows: a matrix can be spread over several of its
    kind."""

    name: str
    total_bytes: int
    free_bytes: int
    description: str = ""
    id: str | None = None
    shared: bool = False
    splits_rows: bool = False

    @property
    def key(self) -> str:
        """Equal for what is the same device."""
        return self.id or self.name

    def __str__(self) -> str:
        return f"{self.name} ({self.description})" if self.description else self.name


@dataclass(frozen=True, slots=True)
class ProbeFacts:
    """What the installed backends found. devices: llama.cpp's, in its order."""

    devices: tuple[Device, ...] = ()
    torch_gpu: bool = False

    @property
    def is_stale(self) -> bool:
        """Whether what is free has to be asked for again: nothing else tells it."""
        free = free_of_pci()
        return any(not device.shared and device.id not in free for device in self.devices)

    def now(self) -> ProbeFacts:
        """With what is free now, where the system tells."""
        free = free_of_pci() if self.devices else {}
        return replace(
            self,
            devices=tuple(
                replace(device, free_bytes=_free(device, free)) for device in self.devices
            ),
        )

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> ProbeFacts:
        """From the probe's answer. Raises KeyError, TypeError."""
        devices = tuple(Device(**each) for each in facts["devices"])
        return cls(devices, bool(facts["torch_gpu"]))


def _free(device: Device, of_pci: Mapping[str, int]) -> int:
    """At most all that it has: the address can be that of a GPU of which it is a part."""
    return min(device.total_bytes, of_pci.get(device.id or "", device.free_bytes))


async def find_devices(folder: Path) -> ProbeFacts:
    """What was found since the last boot by the same build, kept in a file in folder; else what a
    child process finds. Nothing is asked where no library is for devices and NVIDIA's driver
    knows none, which PyTorch would want."""
    if not gpu_memory() and all(_OF_PROCESSOR.match(file.name) for file in _libraries()):
        return ProbeFacts()
    path = folder / _FILE
    key = await asyncio.to_thread(_key)
    facts = await asyncio.to_thread(_kept, path, key)
    if facts is None or facts.is_stale:
        facts = await _ask()
        if facts is not None:
            await asyncio.to_thread(_keep, path, key, facts)
    return facts or ProbeFacts()


async def uses_gpu(folder: Path) -> bool:
    """Whether llama.cpp has a device beside the processor. folder: see find_devices."""
    return bool((await find_devices(folder)).devices)


def _kept(path: Path, key: str) -> ProbeFacts | None:
    with contextlib.suppress(RegistryError, OSError, ValueError, KeyError, TypeError):
        kept = json.loads(read_regular(path, _MAX_FILE_BYTES))
        return ProbeFacts.of(kept) if kept["key"] == key else None
    return None


def _keep(path: Path, key: str, facts: ProbeFacts) -> None:
    with contextlib.suppress(RegistryError, OSError):  # it only saves time
        write_private(path, json.dumps({"key": key, **asdict(facts)}).encode())


def _key() -> str:
    """Of the boot, the builds and what hides devices from them."""
    origins = filter(None, map(_origin, _PACKAGES))
    builds = [(str(file), file.stat().st_mtime_ns) for file in (*_libraries(), *origins)]
    given = {name: os.environ.get(name) for name in INHERITED}
    return json.dumps([int(psutil.boot_time()), builds, given])


def _libraries() -> list[Path]:
    """ggml's."""
    origin = _origin("llama_cpp")
    return sorted((origin / "lib").glob("*ggml*")) if origin else []


def _origin(package: str) -> Path | None:
    spec = find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


async def _ask() -> ProbeFacts | None:
    process = await asyncio.create_subprocess_exec(
        *worker_command("--probe"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        **child_options(),
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _PROBE_TIMEOUT_S)
        return ProbeFacts.of(json.loads(output))
    except (TimeoutError, ValueError, KeyError, TypeError):
        log.warning("the GPU probe did not respond; models run on the CPU")
        if process.returncode is None:
            process.kill()
            await process.wait()
        return None
