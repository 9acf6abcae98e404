"""Whether there is enough memory for a job, which runs in a separate process beside the models."""

from __future__ import annotations

from runner.errors import InsufficientMemory
from runner.models.system_memory import available_bytes


def require_memory(what: str, needed_bytes: int, advice: str) -> None:
    """Refuse what does not fit beside the models in memory. Raises InsufficientMemory."""
    available = available_bytes()
    if needed_bytes > available:
        raise InsufficientMemory(
            f"{what} needs {needed_bytes >> 20} MiB, but only {available >> 20} MiB is free;"
            f" {advice}",
            needed_bytes=needed_bytes,
            available_bytes=available,
        )
