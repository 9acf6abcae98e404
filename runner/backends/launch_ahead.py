"""What a backend may offer beside Backend: steps that are begun before the last one was read.

The tokens of such a step stay on the device, where the next step takes them from. Knows no
requests; runner/engine/launch_ahead.py decides when a step is begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from runner.backends.backend import Row, SampledToken


class PendingStep(Protocol):
    """A step that was begun. To the backend's other calls its rows are computed."""

    def collect(self) -> list[SampledToken]:
        """Wait for it: one Sampled per row, without those dropped, in their order. Once only.
        Raises RowFault, BackendError."""

    def drop(self, sequence: int) -> None:
        """The sequence's row has not been: its cache and sampler are as before."""


@runtime_checkable
class LaunchAhead(Protocol):
    """launches: whether beginning a step early saves time here."""

    launches: bool

    def follows(self, row: Row) -> bool:
        """Whether what comes after row can be chosen without the host."""

    def launch(self, rows: Sequence[Row], after: PendingStep | None) -> PendingStep:
        """Begin a step of one token for each of rows, which follows says yes to. after: a step
        with rows of the same sequences, not yet collected, whose tokens are those to compute, in
        place of what rows hold. Raises PoolFull, BackendError; nothing has changed then."""
