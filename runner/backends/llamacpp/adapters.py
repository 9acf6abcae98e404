"""LoRA adapters of one context of llama.cpp: which of them act in the next batch.

Where hearth's own kernels compute, an adapter is theirs (mixed_adapters.py), and several may act in
one batch, each on the tokens of its own sequences. Else, and where an adapter changes what those do
not compute, it is llama.cpp's, which has one set of them for a whole batch.

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

from registry.errors import RegistryError
from registry.formats.gguf import GgufHeader, read_header
from registry.formats.gguf.lora import has_gains
from runner.backends.backend import BackendError, Row
from runner.backends.host_sampling import native_log
from runner.backends.llamacpp.batch import TokenBatch
from runner.backends.llamacpp.context import Context, ContextAdapters
from runner.backends.llamacpp.mixed_adapters import MixedAdapters, can_mix
from runner.errors import ModelLoadFailed
from runner.types import LoadPlan

Acting = tuple[tuple[Any, float], ...]  # handles of llama.cpp's, and their scales


class Adapters:
    """Those of one context."""

    def __init__(self, context: Context, mixed: MixedAdapters | None = None) -> None:
        """mixed: of hearth's kernels, if they compute the context's products."""
        self._context = context
        self._mixed = mixed
        self._own: dict[str, Any] = {}  # llama.cpp's, by name
        self._acting: Acting = ()

    @property
    def can_mix(self) -> bool:
        """Whether several may act in one batch."""
        return self._mixed is not None and not self._own

    def load(self, name: str, path: Path) -> None:
        """See Backend.load_adapter."""
        try:
            header = read_header(path)
        except RegistryError as error:
            raise ModelLoadFailed(f"the adapter {name}: {error}") from error
        with native_log.library_errors() as library_errors:
            if self._mixed is not None and can_mix(header):
                self._mixed.load(name, path, self._context.model, library_errors)
            else:
                _check_alone(name, header)
                self._own[name] = _load(path, self._context.model, library_errors)

    def unload(self, name: str) -> None:
        """See Backend.unload_adapter."""
        if name in self._own:
            self._set(())
            native.llama_adapter_lora_free(self._own.pop(name))
        elif self._mixed is not None:
            self._mixed.unload(name)

    def close(self) -> None:
        """Free those of hearth's kernels. llama.cpp's go with its model."""
        if self._mixed is not None:
            self._mixed.close()

    def moved(self) -> None:
        """The context was made anew."""
        self._acting = ()

    def act(self, rows: Sequence[Row], batch: TokenBatch) -> None:
        """Compute rows with their adapters; batch is filled with them. Raises BackendError."""
        acting: Acting = tuple(
            (self._own[name], scale) for name, scale in rows[0].adapters if name in self._own
        )
        if self._mixed is not None:
            self._mixed.use(rows, batch)
            if self._mixed.hook is not None:
                acting = ((self._mixed.hook, 1.0), *acting)
        self._set(acting)
        if self._mixed is not None:
            self._mixed.free_unused()

    def _set(self, acting: Acting) -> None:
        """llama.cpp builds its graph anew where they differ."""
        if acting != self._acting:
            _set(self._context.handle, acting)
            self._acting = acting


class FixedAdapters(ContextAdapters):
    """Those of a plan, which act with their scales in all that a context computes."""

    def __init__(
        self,
        plan: LoadPlan,
        model: Any,
        mixed: MixedAdapters | None,
        library_errors: Sequence[str],
    ) -> None:
        """They are freed with model. mixed: of hearth's kernels, if they compute the context's
        products; they take over where one is of DoRA, which multiplies nothing that another adds.
        Raises ModelLoadFailed with the library's last words."""
        given = [(Path(path), scale, read_header(path)) for path, scale in plan.adapters]
        self._mixed = mixed if any(has_gains(header) for _, _, header in given) else None
        acting, mixing = [], []
        for path, scale, header in given:
            if self._mixed is not None and can_mix(header):
                self._mixed.load(path.name, path, model, library_errors)
                mixing.append((path.name, scale))
            else:
                _check_alone(path.name, header)
                acting.append((_load(path, model, library_errors), scale))
        if self._mixed is not None and self._mixed.hook is not None:
            self._mixed.act_everywhere(mixing)
            acting.append((self._mixed.hook, 1.0))
        self._acting = tuple(acting)

    def apply(self, context: Any) -> None:
        _set(context, self._acting)

    def close(self) -> None:
        if self._mixed is not None:
            self._mixed.close()


def _set(context: Any, acting: Acting) -> None:
    count = len(acting)
    handles = (native.llama_adapter_lora_p_ctypes * count)()
    for at, (handle, _) in enumerate(acting):
        handles[at] = ctypes.cast(handle, native.llama_adapter_lora_p_ctypes)
    scales = (ctypes.c_float * count)(*(scale for _, scale in acting))
    code = native.llama_set_adapters_lora(context, handles, count, scales)
    if code != 0:
        raise BackendError(f"llama.cpp rejected the adapters (code {code})")


def _check_alone(name: str, header: GgufHeader) -> None:
    """Raises ModelLoadFailed for an adapter that llama.cpp cannot compute by itself."""
    if has_gains(header):
        raise ModelLoadFailed(
            f"the adapter {name} is one of DoRA, which on llama.cpp hearth's kernels compute. They"
            " do not take part here: they were not compiled or are switched off"
            " (HEARTH_NATIVE_KERNELS), there is a GPU, the model has a recurrent state, or the"
            " adapter changes the embedding or experts too"
        )


def _load(path: Path, model: Any, library_errors: Sequence[str]) -> Any:
    handle = native.llama_adapter_lora_init(model, os.fsencode(path))
    if not handle:
        reason = native_log.last_errors(library_errors)
        raise ModelLoadFailed(
            f"the adapter {path.name} was rejected: llama.cpp cannot load it ({reason})"
        )
    if native.llama_adapter_get_alora_n_invocation_tokens(handle):
        native.llama_adapter_lora_free(handle)
        raise ModelLoadFailed(
            f"the adapter {path.name} is an activated LoRA, which applies to part of the prompt "
            "only; this version applies adapters to all of it"
        )
    return handle
