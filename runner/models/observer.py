"""What the manager tells of its models while it works, to whoever counts."""

from __future__ import annotations

from typing import Protocol

from runner.types import Finish


class Observer(Protocol):
    """Is told at once, on the event loop; must be quick and never raise."""

    def finished(self, model: str, finish: Finish) -> None:
        """A sequence has ended by itself."""

    def aborted(self, model: str, count: int) -> None:
        """So many sequences were cancelled by their clients."""

    def loaded(self, model: str, seconds: float) -> None:
        """A model's worker is ready."""

    def evicted(self, model: str) -> None:
        """A model was unloaded to make room for another."""

    def crashed(self, model: str) -> None:
        """A model's worker has ended by a fault."""


class NullObserver:
    """An Observer that counts nothing."""

    def finished(self, model: str, finish: Finish) -> None:
        """See Observer."""

    def aborted(self, model: str, count: int) -> None:
        """See Observer."""

    def loaded(self, model: str, seconds: float) -> None:
        """See Observer."""

    def evicted(self, model: str) -> None:
        """See Observer."""

    def crashed(self, model: str) -> None:
        """See Observer."""
