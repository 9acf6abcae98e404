"""The LoRA adapters that requests of an engine may name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from runner.backends.backend import Backend
from runner.engine.scheduler import ScheduledStep
from runner.engine.sequence import Sequence
from runner.errors import Conflict
from runner.types import Adapters


class EngineAdapters:
    """Those of one backend."""

    def __init__(self, backend: Backend, sequences: Mapping[str, Sequence]) -> None:
        """sequences: those of the engine, whatever they are doing."""
        self._backend = backend
        self._sequences = sequences
        self._names: set[str] = set()

    def load(self, name: str, path: Path) -> None:
        """Let requests name an adapter; no effect where they may already. Raises
        ModelLoadFailed."""
        if name not in self._names:
            self._backend.load_adapter(name, path)
            self._names.add(name)

    def unload(self, name: str) -> None:
        """Its memory is free. What was computed with it stays as cache. Raises Conflict while a
        sequence uses it."""
        if any(name == used for item in self._sequences.values() for used, _ in item.adapters):
            raise Conflict(f"the adapter {name} is in use")
        if name in self._names:
            self._names.discard(name)
            self._backend.unload_adapter(name)

    def check(self, adapters: Adapters) -> None:
        """Raises Conflict for one that is not loaded."""
        for name, _ in adapters:
            if name not in self._names:
                raise Conflict(f"the adapter {name} is not loaded")

    def parts(self, step: ScheduledStep) -> list[ScheduledStep]:
        """The step as the backend computes it: whole, or in parts by adapter."""
        whole = not self._names or self._backend.mixes_adapters
        return [step] if whole else list(step.by_adapters())
