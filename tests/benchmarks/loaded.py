"""A model that benchmarks load in their own process."""

from __future__ import annotations

from pathlib import Path

from runner.backends.backend import LoadedBackend
from runner.types import LoadPlan


def load(
    model: Path, backend: str, streams: int, *, threads: int | None, context: int = 1024
) -> LoadedBackend:
    """The model with room for so many sequences. threads: None: as the backend chooses."""
    if backend == "torch":
        from runner.backends.torch import load as load_model
    else:
        from runner.backends.llamacpp import load as load_model
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
