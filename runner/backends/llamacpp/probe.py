"""What the installed llama.cpp can do on this machine, for the daemon's memory plan and the
installer. Loads no model.
"""

from __future__ import annotations

import ctypes
from typing import Any

from llama_cpp import _ggml
from llama_cpp import llama_cpp as native

from runner.backends.host_sampling.library import start_library
from runner.backends.host_sampling.threads import physical_cores

_KINDS = {0: "cpu", 1: "gpu", 2: "integrated_gpu", 3: "accelerator"}


def probe() -> dict[str, Any]:
    """JSON values: version, system (the instruction sets in use), threads, gpu_offload (whether
    layers can go to a GPU), devices (each with name, description, kind, memory in bytes)."""
    start_library()
    return {
        "version": native.llama_version().decode(),
        "system": native.llama_print_system_info().decode().strip(" |"),
        "threads": physical_cores(),
        "gpu_offload": bool(native.llama_supports_gpu_offload()),
        "max_sequences": int(native.llama_max_parallel_sequences()),
        "devices": devices(),
    }


def devices() -> list[dict[str, Any]]:
    """The devices that llama.cpp found, in its order."""
    library = _ggml.libggml
    count = _function(library, "ggml_backend_dev_count", ctypes.c_size_t)
    get = _function(library, "ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    return [_device(library, get(index)) for index in range(count())]


def _device(library: ctypes.CDLL, handle: int) -> dict[str, Any]:
    pointer = ctypes.POINTER(ctypes.c_size_t)
    name = _function(library, "ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)
    text = _function(library, "ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)
    kind = _function(library, "ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)
    memory = _function(library, "ggml_backend_dev_memory", None, ctypes.c_void_p, pointer, pointer)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    memory(handle, ctypes.byref(free), ctypes.byref(total))
    return {
        "name": name(handle).decode("utf-8", "replace"),
        "description": text(handle).decode("utf-8", "replace"),
        "kind": _KINDS.get(kind(handle), "other"),
        "memory_free_bytes": free.value,
        "memory_total_bytes": total.value,
    }


def _function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = arguments
    return function
