"""What memory there is: the machine's, the control group's, the GPUs'.

Reads facts and decides nothing. Sizes in bytes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")
_PCI = Path("/sys/bus/pci/devices")
_UNLIMITED = 1 << 60  # version 1 says "no limit" with a number near 2**63


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """An NVIDIA GPU. id: its address on the PCI bus."""

    id: str
    name: str
    total_bytes: int
    free_bytes: int


def available_bytes() -> int:
    """What new processes may use without swapping, by the kernel's estimate and the limit of
    our control group."""
    available = int(psutil.virtual_memory().available)
    group = cgroup_available_bytes()
    return available if group is None else min(available, group)


def cgroup_available_bytes(root: Path = _CGROUP) -> int | None:
    """What the control group's limit leaves; None without a limit. Page cache that the kernel
    can drop does not count as used."""
    for folder, limit_name, usage_name, inactive in (
        (root, "memory.max", "memory.current", "inactive_file"),
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit = _number(folder / limit_name)
        usage = _number(folder / usage_name)
        if limit is None or usage is None or limit >= _UNLIMITED:
            continue
        droppable = _stat(folder / "memory.stat", inactive)
        return max(0, limit - max(0, usage - droppable))
    return None


def anonymous_bytes(pid: int) -> int:
    """Memory of a process that the kernel counts as used: not its mapped files, which it counts
    as available. 0 when the process is gone or the platform does not say."""
    try:
        info = psutil.Process(pid).memory_info()
    except psutil.Error:
        return 0
    return max(0, int(info.rss) - int(getattr(info, "shared", info.rss)))


def gpu_memory() -> tuple[GpuMemory, ...]:
    """The NVIDIA devices and their free memory; empty where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        indices = visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"))
        count = range(pynvml.nvmlDeviceGetCount())
        return tuple(_gpu(pynvml, i) for i in count if indices is None or i in indices)
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def visible_devices(variable: str | None) -> tuple[int, ...] | None:
    """The devices that CUDA_VISIBLE_DEVICES leaves; None: all. As in CUDA, the first entry that
    is no index hides the rest; names (UUIDs) are not resolved and leave all."""
    if variable is None or variable.startswith(("GPU-", "MIG-")):
        return None
    indices: list[int] = []
    for entry in variable.split(","):
        if not entry.strip().isdigit():
            break
        indices.append(int(entry))
    return tuple(indices)


def _gpu(pynvml, index: int) -> GpuMemory:  # type: ignore[no-untyped-def]
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    domain, _, rest = pynvml.nvmlDeviceGetPciInfo(handle).busId.lower().partition(":")
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    name = pynvml.nvmlDeviceGetName(handle)
    return GpuMemory(
        f"{domain[-4:]}:{rest}", str(name), int(memory.total), int(memory.free)
    )  # NVML writes domains with eight digits, everybody else with four


def free_of_pci(folder: Path = _PCI) -> dict[str, int]:
    """Free memory by address on the PCI bus, of the GPUs whose drivers tell: NVIDIA's, and on Linux
    AMD's."""
    found = {gpu.id: gpu.free_bytes for gpu in gpu_memory()}
    for total_file in folder.glob("*/mem_info_vram_total"):
        device = total_file.parent
        total, used = _number(total_file), _number(device / "mem_info_vram_used")
        if total is not None and used is not None:
            found[device.name] = max(0, total - used)
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _stat(path: Path, key: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        name, _, value = line.partition(" ")
        if name == key and value.strip().isdigit():
            return int(value)
    return 0
