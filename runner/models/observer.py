"""What the manager reports of its models while it works, to whoever counts."""

from __future__ import annotations

from runner.types import Finish


class Observer:
    """Counts nothing; who counts overrides. Called at once, on the event loop; must be quick and
    never raise."""

    def finished(self, model: str, finish: Finish) -> None:
        """A sequence has ended by itself."""

    def embedded(self, tokens: int) -> None:
        """Inputs of so many tokens were embedded."""

    def aborted(self, model: str) -> None:
        """A sequence was cancelled by its client."""

    def loaded(self, model: str, seconds: float) -> None:
        """A model's worker is ready."""

    def evicted(self, model: str) -> None:
        """A model was unloaded for the memory that another needs."""

    def crashed(self, model: str) -> None:
        """A model's worker has ended by a fault."""
