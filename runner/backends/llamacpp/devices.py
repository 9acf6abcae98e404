"""The devices that llama.cpp can put layers on, in its own order, and how a plan names them.

ggml's device registry (ggml-backend.h) through ctypes: llama-cpp-python binds none of it. The
choice is that of llama.cpp's llama_prepare_model_devices. Asked in processes of their own only: to
ask starts the drivers.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from llama_cpp import llama_cpp as native

from registry.formats.gguf.tensors import EXPERTS
from runner.errors import ModelLoadFailed

_GPU, _INTEGRATED = 1, 2  # ggml_backend_dev_type
_REMOTE, _METAL = "RPC", "MTL"  # names of ggml's backends
_SPLIT_ROWS: Final = b"ggml_backend_split_buffer_type"
_POINTER, _TEXT, _SIZE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {  # result, arguments
    "dev_count": (_SIZE,),
    "dev_get": (_POINTER, _SIZE),
    "dev_by_name": (_POINTER, _TEXT),
    "dev_type": (ctypes.c_int, _POINTER),
    "dev_backend_reg": (_POINTER, _POINTER),
    "dev_get_props": (None, _POINTER, _POINTER),
    "reg_name": (_TEXT, _POINTER),
    "reg_get_proc_address": (_POINTER, _POINTER, _TEXT),
    "cpu_buffer_type": (_POINTER,),
}


class _Properties(ctypes.Structure):
    """ggml_backend_dev_props; its capabilities are five bool."""

    _fields_ = (
        ("name", _TEXT),
        ("description", _TEXT),
        ("memory_free", _SIZE),
        ("memory_total", _SIZE),
        ("type", ctypes.c_int),
        ("device_id", _TEXT),
        ("capabilities", ctypes.c_bool * 16),
    )


class _TensorOverride(ctypes.Structure):
    """llama_model_tensor_buft_override."""

    _fields_ = (("pattern", _TEXT), ("buffer_type", _POINTER))


def _ggml(name: str, *arguments: Any) -> Any:
    function = getattr(native._lib, f"ggml_backend_{name}")
    function.restype, *function.argtypes = _FUNCTIONS[name]
    return function(*arguments)


def devices() -> list[dict[str, Any]]:
    """The devices that a model's layers go to where nobody names any: name, description, id (the
    address on the PCI bus, where it is known), total_bytes, free_bytes, shared (its memory is the
    machine's) and splits_rows. The library has been started."""
    found = [_ggml("dev_get", number) for number in range(_ggml("dev_count"))]
    remote: list[int] = []
    dedicated: dict[object, int] = {}
    integrated: list[int] = []
    for device in found:
        kind, backend = _ggml("dev_type", device), _backend_name(device)
        if kind == _GPU and backend == _REMOTE:
            remote.append(device)
        elif kind == _GPU:  # seen by two backends: the first one has it
            dedicated.setdefault(_properties(device).device_id or device, device)
        elif kind == _INTEGRATED and (not integrated or backend == _backend_name(integrated[0])):
            integrated.append(device)
    return [_facts(device) for device in (*remote, *(dedicated.values() or integrated))]


def _backend_name(device: int) -> str:
    name: bytes = _ggml("reg_name", _ggml("dev_backend_reg", device))
    return name.decode("utf-8", "replace")


def _properties(device: int) -> _Properties:
    properties = _Properties()
    _ggml("dev_get_props", device, ctypes.byref(properties))
    return properties


def _facts(device: int) -> dict[str, Any]:
    said, backend = _properties(device), _ggml("dev_backend_reg", device)
    # Metal calls the GPU of an Apple processor one with memory of its own
    unified = sys.platform == "darwin" and _backend_name(device) == _METAL
    return {
        "name": _text(said.name),
        "description": _text(said.description),
        "id": _text(said.device_id) or None,
        "total_bytes": said.memory_total,
        "free_bytes": said.memory_free,
        "shared": unified or _ggml("dev_type", device) == _INTEGRATED,
        "splits_rows": bool(_ggml("reg_get_proc_address", backend, _SPLIT_ROWS)),
    }


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


def device_list(names: Sequence[str]) -> Any:
    """llama_model_params.devices for devices of these names. Raises ModelLoadFailed for one that is
    not there any more."""
    found = [_ggml("dev_by_name", name.encode()) for name in names]
    for name, device in zip(names, found, strict=True):
        if device is None:
            raise ModelLoadFailed(f"the device {name} is gone since the model was planned for it")
    return (_POINTER * (len(found) + 1))(*found, None)


def experts_on_cpu(layers: int) -> Any:
    """llama_model_params.tensor_buft_overrides: the experts of the first layers stay in the
    machine's memory, where the processor computes them."""
    buffer_type = _ggml("cpu_buffer_type")
    patterns: Iterator[bytes] = (rf"blk\.{layer}{EXPERTS}".encode() for layer in range(layers))
    overrides = [_TensorOverride(pattern, buffer_type) for pattern in patterns]
    return (_TensorOverride * (layers + 1))(*overrides, _TensorOverride())


def shares(given: Sequence[float]) -> Any:
    """llama_model_params.tensor_split."""
    size = native.llama_max_devices()
    return (ctypes.c_float * size)(*given[:size])
