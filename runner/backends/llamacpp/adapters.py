"""LoRA adapters of a load plan, put on a context: a step is computed with one scale of each.

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

from runner.backends.backend import BackendError
from runner.backends.host_sampling import native_log
from runner.errors import ModelLoadFailed
from runner.types import LoadPlan


class Adapters:
    """Those of one context. They are freed with its model."""

    def __init__(self, context: Any, handles: Sequence[Any], scales: tuple[float, ...]) -> None:
        """Sets them. Raises BackendError."""
        self._context = context
        self._handles = (native.llama_adapter_lora_p_ctypes * len(handles))()
        for at, handle in enumerate(handles):
            self._handles[at] = ctypes.cast(handle, native.llama_adapter_lora_p_ctypes)
        self._scales: tuple[float, ...] | None = None
        self.scale(scales)

    def move(self, context: Any) -> None:
        """Act on another context of the model. Raises BackendError."""
        scales, self._scales, self._context = self._scales, None, context
        self.scale(scales or ())

    def scale(self, scales: tuple[float, ...]) -> None:
        """Compute with these scales from here on; llama.cpp builds its graph anew where they
        differ. Raises BackendError."""
        if scales == self._scales:
            return
        count = len(self._handles)
        values = (ctypes.c_float * count)(*scales)
        code = native.llama_set_adapters_lora(self._context, self._handles, count, values)
        if code != 0:
            raise BackendError(f"llama.cpp rejected the adapters (code {code})")
        self._scales = scales


def apply_adapters(
    plan: LoadPlan, model: Any, context: Any, library_errors: Sequence[str]
) -> Adapters | None:
    """Load the plan's adapters for model and set them, with their scales, on context; None: it has
    none. Raises ModelLoadFailed with the library's last words."""
    if not plan.adapters:
        return None
    handles = [_load(Path(path), model, library_errors) for path, _ in plan.adapters]
    try:
        return Adapters(context, handles, tuple(scale for _, scale in plan.adapters))
    except BackendError as error:
        raise ModelLoadFailed(str(error)) from None


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
