"""LoRA adapters of a load plan, put on a context: every sequence in it is computed with them.

Whether an adapter is for this model is checked in Python before, by the daemon. Knows nothing of
how the model itself is loaded.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_cpp import llama_cpp as native

from runner.backends.host_sampling import native_log
from runner.errors import ModelLoadFailed
from runner.types import LoadPlan


def apply_adapters(plan: LoadPlan, model: Any, context: Any, library_errors: Sequence[str]) -> None:
    """Load the plan's adapters for model and set them, with their scales, on context. They are
    freed with the model. Raises ModelLoadFailed with the library's last words."""
    if not plan.adapters:
        return
    handles = [_load(Path(path), model, library_errors) for path, _ in plan.adapters]
    count = len(handles)
    adapters = (native.llama_adapter_lora_p_ctypes * count)()
    for at, handle in enumerate(handles):
        adapters[at] = ctypes.cast(handle, native.llama_adapter_lora_p_ctypes)
    scales = (ctypes.c_float * count)(*(scale for _, scale in plan.adapters))
    code = native.llama_set_adapters_lora(context, adapters, count, scales)
    if code != 0:
        raise ModelLoadFailed(f"llama.cpp rejected the adapters (code {code})")


def _load(path: Path, model: Any, library_errors: Sequence[str]) -> Any:
    handle = native.llama_adapter_lora_init(model, os.fsencode(path))
    if not handle:
        reason = native_log.last_errors(library_errors)
        raise ModelLoadFailed(
            f"the adapter {path.name} was rejected: llama.cpp cannot load it ({reason})"
        )
    if native.llama_adapter_get_alora_n_invocation_tokens(handle):
        raise ModelLoadFailed(
            f"the adapter {path.name} is an activated LoRA, which applies to part of the prompt "
            "only; this version applies adapters to all of it"
        )
    return handle
