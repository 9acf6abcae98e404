"""What the installed llama.cpp and torch can do, found out in a process that may die of it."""

from __future__ import annotations

import importlib
import json
from importlib.util import find_spec
from pathlib import Path

_GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))  # of Linux, of Linux in Windows


def probe() -> int:
    """Print one line of JSON: version, gpu_offload (whether llama.cpp can put layers on a GPU), the
    devices that it would use, and torch_gpu, or {"error"}. Returns the exit code."""
    try:
        from llama_cpp import llama_cpp as native

        from runner.backends.host_sampling.library import start_library
        from runner.backends.llamacpp.devices import devices

        start_library()
        facts = {
            "version": native.llama_version().decode(),
            "gpu_offload": bool(native.llama_supports_gpu_offload()),
            "devices": devices(),
            "torch_gpu": torch_gpu(),
        }
        print(json.dumps(facts))
    except Exception as error:
        print(json.dumps({"error": f"llama.cpp is unusable: {error}"}))
        return 1
    return 0


def torch_gpu() -> bool:
    """Whether torch is installed and computes on a GPU of this machine. It is not imported where
    there is none: that takes a second."""
    if find_spec("torch") is None or not any(device.exists() for device in _GPU_DEVICES):
        return False
    try:
        return bool(importlib.import_module("torch").cuda.is_available())
    except (ImportError, OSError):
        return False  # built for libraries that this machine lacks
