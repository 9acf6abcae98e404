"""Facts about this machine and its software, needed to interpret a figure."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

CPU_INFO = Path("/proc/cpuinfo")


def machine_facts() -> dict[str, Any]:
    """The facts as JSON values; None for what cannot be found out."""
    cores = psutil.cpu_count(logical=False)
    return {
        "cpu": cpu_name(),
        "cores": cores,
        "threads": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
        "hearth": package_version("hearth"),
        "llama_cpp_python": package_version("llama-cpp-python"),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def cpu_name() -> str | None:
    """The CPU's own name where the system tells it."""
    try:
        lines = CPU_INFO.read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None) or platform.processor() or None


def package_version(name: str) -> str | None:
    """The version of an installed package; None when it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
