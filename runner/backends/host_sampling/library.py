"""llama.cpp's library in this process: started once, and a model's chat templates."""

from __future__ import annotations

from functools import cache
from typing import Any

from llama_cpp import llama_cpp as native

from runner.backends.host_sampling import native_log


@cache
def start_library() -> None:
    """Prepare llama.cpp for this process, once."""
    native_log.install()
    native.llama_backend_init()


def chat_template(model: Any, name: str | None = None) -> str | None:
    """The Jinja source in a model file: the one called name, or that for conversations."""
    source = native.llama_model_chat_template(model, None if name is None else name.encode())
    return source.decode("utf-8", "replace") if source else None
