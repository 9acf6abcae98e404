"""llama.cpp's library in this process: started once, and a model's chat templates."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from llama_cpp import llama_cpp as native

from runner.backends.host_sampling import native_log


@cache
def start_library() -> None:
    """Prepare llama.cpp for this process, once."""
    native_log.install()
    native.llama_backend_init()
    _load_backends()


def _load_backends() -> None:
    """A build for every processor has its backends as files, of which ggml takes the best."""
    registered = native._lib.ggml_backend_reg_count
    registered.restype = ctypes.c_size_t
    if not registered():
        load = native._lib.ggml_backend_load_all_from_path
        load.restype, load.argtypes = None, (ctypes.c_char_p,)
        load(str(native._base_path).encode())


def chat_template(model: Any, name: str | None = None) -> str | None:
    """The Jinja source in a model file: the one called name, or that for conversations."""
    source = native.llama_model_chat_template(model, None if name is None else name.encode())
    return source.decode("utf-8", "replace") if source else None
