"""The machine: processor, memory and its limits, GPUs, clock."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from cli.doctor.finding import Finding, ok, problem, warning
from cli.render import size
from runner.settings import Settings

_CGROUP = Path("/sys/fs/cgroup")
_LITTLE_BYTES = 1 << 30  # no model of a billion weights fits
_UNLIMITED = 1 << 60  # version 1 says "no limit" with a number near 2**63
_SKEW_S = 60.0
_NVIDIA, _DISPLAY = "0x10de", "0x03"  # PCI's vendor, and the beginning of its class


def check_processor(_: Settings) -> Iterator[Finding]:
    """Which processor, and how much of it this process may use."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        name = next((s.split(": ", 1)[1] for s in lines if s.startswith("model name\t: ")), name)
    except OSError:
        pass
    cores, threads = psutil.cpu_count(logical=False), psutil.cpu_count()
    text = f"{name}, {cores or 'unknown'} cores, {threads} threads"
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else threads
    if allowed and threads and allowed < threads:
        yield warning("processor", f"{text}, of which this process may use {allowed}", "taskset -p")
        return
    quota = cpu_quota(control_groups())
    if quota is not None and quota < (cores or 1):
        mend = "raise CPUQuota of the service or --cpus of the container, or set "
        mend += f"HEARTH_NUM_THREADS={max(1, int(quota))}"
        yield warning("processor", f"{text}; the control group allows {quota:g} of them", mend)
        return
    yield ok("processor", text)


def check_memory(settings: Settings) -> Iterator[Finding]:
    """What memory there is, and which limits hold."""
    memory = psutil.virtual_memory()
    available, text = memory.available, f"{size(memory.available)} of {size(memory.total)} free"
    limit = memory_limit(control_groups())
    if limit is not None and limit < memory.total:
        available = min(available, limit)
        text += f"; the control group allows {size(limit)}"
        if limit != memory_limit([_CGROUP, _CGROUP / "memory"]) and settings.memory_limit is None:
            given = limit * 9 // 10 >> 20
            mend = f"set HEARTH_MEMORY_LIMIT={given}MiB: hearth plans with the whole machine's"
            yield warning("memory", text, mend)
            return
    if settings.memory_limit is not None:
        text += f"; HEARTH_MEMORY_LIMIT is {size(settings.memory_limit)}"
    if available < _LITTLE_BYTES:
        yield warning("memory", text, "end other programs, or unload models: hearth stop --all")
    else:
        yield ok("memory", text)


def control_groups(
    root: Path = _CGROUP, membership: Path = Path("/proc/self/cgroup")
) -> list[Path]:
    """The folders of this process's control groups and of those above them, of version 2 and of
    version 1's memory and cpu."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for line in lines:
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        for kind in {"", "memory", "cpu"} & set(kinds.split(",")):
            group = root / kind / path.lstrip("/")
            found += [group, *(g for g in group.parents if g.is_relative_to(root / kind))]
    return found


def memory_limit(groups: list[Path]) -> int | None:
    """The smallest limit in bytes; None: there is none."""
    names = ("memory.max", "memory.limit_in_bytes")
    limits = [_number(group / name) or _UNLIMITED for group in groups for name in names]
    return min((limit for limit in limits if limit < _UNLIMITED), default=None)


def cpu_quota(groups: list[Path]) -> float | None:
    """How many processors the smallest quota allows; None: there is none."""
    quotas = []
    for group in groups:
        words = _text(group / "cpu.max").split()
        quota, period = (*words, "", "")[:2]
        if not quota:
            quota = _text(group / "cpu.cfs_quota_us").strip()
            period = _text(group / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal() and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def check_gpu(_: Settings, devices: Path = Path("/sys/bus/pci/devices")) -> Iterator[Finding]:
    """The NVIDIA devices and their driver."""
    import pynvml

    present = [d for d in devices.glob("*") if _text(d / "vendor").strip() == _NVIDIA
               and _text(d / "class").startswith(_DISPLAY)]  # fmt: skip
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if present:
            text = f"{len(present)} NVIDIA GPU, whose driver does not answer: {error}"
            yield problem("gpu", text, "install NVIDIA's driver, then: nvidia-smi")
        else:
            yield ok("gpu", "no NVIDIA GPU; others are in the line of llama.cpp")
        return
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            free = f"{size(int(memory.free))} of {size(int(memory.total))} free"
            yield ok("gpu", f"{pynvml.nvmlDeviceGetName(handle)}, {free}, driver {driver}")
    finally:
        pynvml.nvmlShutdown()


def check_clock(settings: Settings) -> Iterator[Finding]:
    """Whether the time can be right: not before hearth was written, not beside the store's."""
    ago_s = time.time() - Path(__file__).stat().st_mtime
    if ago_s < -_SKEW_S:
        text = f"the clock says {time.strftime('%Y-%m-%d %H:%M')}, before hearth was installed"
        yield problem("clock", text, "timedatectl set-ntp true")
        return
    folder = settings.models_dir if os.access(settings.models_dir, os.W_OK) else None
    with tempfile.TemporaryFile(dir=folder) as file:
        skew_s = os.fstat(file.fileno()).st_mtime - time.time()
    if abs(skew_s) > _SKEW_S:
        text = f"new files of {folder or 'this machine'} are {skew_s:+.0f} s from its clock"
        yield warning("clock", text, "timedatectl set-ntp true, here and on the file server")
        return
    yield ok("clock", time.strftime("%Y-%m-%d %H:%M:%S %z"))


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
