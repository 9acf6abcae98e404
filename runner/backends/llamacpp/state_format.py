"""What the bytes of a saved sequence depend on, besides the model and the plan: who computed it.

Knows nothing of files.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import json
import platform
from typing import Any

from llama_cpp import llama_cpp as native

from kernels.native import library_path
from runner.backends.llamacpp.context import Context
from runner.types import LoadPlan

_MAX_VALUE_BYTES = 64


def state_format(plan: LoadPlan, context: Context) -> str:
    """Equal for workers that compute the same bits: the library, the instructions that it and
    hearth's kernels use, and whether positions are scaled for a long context; "" where that may
    change. plan: as it can be had."""
    long = _is_long(context.model, int(native.llama_n_ctx_seq(context.handle)))
    if long != _is_long(context.model, plan.max_pool_tokens or 0) and plan.max_pool_tokens:
        return ""
    kernels = library_path("llamacpp") if plan.native_kernels else None
    digest = "" if kernels is None else hashlib.sha256(kernels.read_bytes()).hexdigest()
    facts = {
        "llama.cpp": importlib.metadata.version("llama-cpp-python"),
        "instructions": native.llama_print_system_info().decode(errors="replace"),
        "machine": platform.machine(),
        "kernels": digest,
        "flash_attention": plan.flash_attention,
        "long_context": long,
    }
    return json.dumps(facts, sort_keys=True)


def _is_long(model: Any, tokens: int) -> bool:
    """Models with two sets of rope factors take the second one for contexts beyond the length that
    they were first trained for."""
    architecture = _value(model, "general.architecture")
    first = _value(model, f"{architecture}.rope.scaling.original_context_length")
    return first.isdigit() and tokens > int(first)


def _value(model: Any, key: str) -> str:
    text = ctypes.create_string_buffer(_MAX_VALUE_BYTES)
    size = native.llama_model_meta_val_str(model, key.encode(), text, len(text))
    return text.value.decode(errors="replace") if size >= 0 else ""
