"""A model that benchmarks load in their own process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from runner.backends.backend import LoadedBackend
from runner.types import LoadPlan

Load = Callable[[LoadPlan, Callable[[float], None]], LoadedBackend]


def load(
    model: Path, backend: str, streams: int, *, threads: int | None, context: int = 1024
) -> LoadedBackend:
    """The model with room for so many sequences. threads: None: as the backend chooses."""
    if backend == "torch":
        from runner.backends.torch import load as load_torch

        load_model: Load = load_torch
    else:
        from runner.backends.llamacpp import load as load_llamacpp

        load_model = load_llamacpp
    plan = LoadPlan(
        path=str(model),
        backend=backend,  # type: ignore[arg-type]
        context_length=context,
        pool_tokens=context * streams,
        max_sequences=streams,
        batch_tokens=512,
        threads=threads,
    )
    return load_model(plan, lambda _share: None)
