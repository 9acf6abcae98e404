"""The next decode step begins before the last one was read.

While the device computes step N + 1, the host detokenizes, sends and schedules what step N gave.
Which sequences go on is known one step late: a row that was computed for one that has ended, or
is computed otherwise, is dropped, and the backend is as if it had never been. To the engine this
is a Backend like any other; the answers are the same. Knows no requests, text or queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from runner.backends.backend import (
    Backend,
    BackendError,
    PoolFull,
    Row,
    RowFault,
    SampledToken,
    Sampler,
    SavedState,
)
from runner.types import OWN_FORM, EmbeddingForm, SamplingParams


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


@dataclass(slots=True)
class _Expected:
    """A row of the step in flight. token: None until the step before was read."""

    position: int
    sampler: Sampler
    token: int | None = None

    def is_row(self, row: Row) -> bool:
        return (
            self.token is not None
            and row.position == self.position
            and row.sampler is self.sampler
            and len(row.tokens) == 1
            and row.tokens[0] == self.token
            and _is_plain(row)
        )


@dataclass(slots=True)
class LaunchCounters:
    """Counts since the start. begun: steps begun early, chained: of them before the step before
    was read; kept and dropped: rows of steps begun early."""

    begun: int = 0
    chained: int = 0
    kept: int = 0
    dropped: int = 0


def launch_ahead(backend: Backend) -> Backend:
    """The backend, its decode steps begun early where that saves time."""
    if isinstance(backend, LaunchAhead) and backend.launches:
        return LaunchAheadBackend(backend, backend)
    return backend


class LaunchAheadBackend(Backend):
    """Another backend, of which decode steps are begun early."""

    def __init__(self, backend: Backend, launching: LaunchAhead) -> None:
        """Takes over backend; launching is the same object."""
        self.capacity = backend.capacity
        self.launches = LaunchCounters()
        self._backend = backend
        self._launching = launching
        self._pending: PendingStep | None = None
        self._expected: dict[int, _Expected] = {}  # by sequence, the rows of _pending

    def create_sampler(self, params: SamplingParams) -> Sampler:
        return self._backend.create_sampler(params)

    @property
    def mixes_adapters(self) -> bool:
        return self._backend.mixes_adapters

    def load_adapter(self, name: str, path: Path) -> None:
        self._backend.load_adapter(name, path)

    def unload_adapter(self, name: str) -> None:
        self._backend.unload_adapter(name)

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        """See Backend. Rows that are in flight are read, the others computed, and the step after
        this one begun."""
        in_flight = {row.sequence for row in rows if self._is_in_flight(row)}
        for sequence in [one for one in self._expected if one not in in_flight]:
            self._settle(sequence)
        others = [row for row in rows if row.sequence not in in_flight]
        sampled, faulty, message = self._computed(others)
        pending, self._pending, self._expected = self._pending, None, {}
        self.launches.kept += len(in_flight)
        if pending is not None and not others:
            self._begin(rows, pending)
        if pending is not None:
            try:
                sampled += pending.collect()
            except RowFault as fault:
                sampled += fault.sampled
                faulty, message = [*faulty, *fault.sequences], str(fault)
        self._go_on(rows, sampled, faulty)
        result = _in_order(rows, sampled)
        if faulty:
            raise RowFault(message, sampled=result, sequences=faulty)
        return result

    def _is_in_flight(self, row: Row) -> bool:
        expected = self._expected.get(row.sequence)
        return expected is not None and expected.is_row(row)

    def _computed(self, rows: Sequence[Row]) -> tuple[list[SampledToken], list[int], str]:
        """What the rows gave, the sequences of those at fault, and why."""
        if not rows:
            return [], [], ""
        try:
            return list(self._backend.step(rows)), [], ""
        except RowFault as fault:
            return list(fault.sampled), list(fault.sequences), str(fault)

    def _go_on(
        self, rows: Sequence[Row], sampled: Sequence[SampledToken], faulty: list[int]
    ) -> None:
        """Let the step after this one, which began before its tokens were known or begins now,
        know them."""
        tokens = {one.sequence: one.token for one in sampled}
        if self._pending is None and not faulty:
            self._begin(rows, None, tokens)
        for sequence, expected in self._expected.items():
            expected.token = tokens.get(sequence)

    def _begin(
        self, rows: Sequence[Row], after: PendingStep | None, tokens: dict[int, int] | None = None
    ) -> None:
        """Begin the step that follows rows, if all of them can go on so. tokens: those that rows
        gave, where after is None."""
        known = tokens or {}
        next_rows: list[Row] = []
        for row in rows:
            if row.sampler is None or not _is_plain(row) or not self._launching.follows(row):
                return
            position = row.position + len(row.tokens)
            if position < self.capacity.context_length:
                token = known.get(row.sequence, 0)
                next_rows.append(Row(row.sequence, (token,), position, row.sampler))
        if not next_rows:
            return
        try:
            self._pending = self._launching.launch(next_rows, after)
        except BackendError:
            return  # what is wrong shows again when the step is due
        self.launches.begun += 1
        self.launches.chained += after is not None
        self._expected = {
            row.sequence: _Expected(row.position, row.sampler)
            for row in next_rows
            if row.sampler is not None
        }

    def _settle(self, sequence: int) -> None:
        """What was computed early for the sequence has not been."""
        if self._expected.pop(sequence, None) is None:
            return
        assert self._pending is not None
        self._pending.drop(sequence)
        self.launches.dropped += 1
        if not self._expected:
            self._pending = None

    def _settle_all(self) -> None:
        for sequence in list(self._expected):
            self._settle(sequence)

    def share(self, source: int, target: int, length: int) -> None:
        """See Backend. A token too many at source's end is not shared."""
        self._settle(target)
        self._backend.share(source, target, length)

    def merge(self, source: int, target: int, length: int) -> None:
        self._settle(target)
        self._backend.merge(source, target, length)

    def trim(self, sequence: int, length: int) -> bool:
        self._settle(sequence)
        return self._backend.trim(sequence, length)

    def release(self, sequence: int) -> None:
        self._settle(sequence)
        self._backend.release(sequence)

    def state_bytes(self, sequence: int) -> int:
        self._settle(sequence)
        return self._backend.state_bytes(sequence)

    def save(self, sequence: int) -> SavedState:
        self._settle(sequence)
        return self._backend.save(sequence)

    def load(self, state: SavedState, sequence: int) -> None:
        self._settle(sequence)
        try:
            self._backend.load(state, sequence)
        except PoolFull:
            self._settle_all()
            self._backend.load(state, sequence)

    def reset(self) -> None:
        self._pending, self._expected = None, {}
        self._backend.reset()

    def embed(
        self, inputs: Sequence[Sequence[int]], form: EmbeddingForm = OWN_FORM
    ) -> list[list[float]]:
        return self._backend.embed(inputs, form)


def _is_plain(row: Row) -> bool:
    """The row computes known tokens and samples one, without anything beside."""
    return row.mask is None and row.scoring is None and not row.draft and row.image is None


def _in_order(rows: Sequence[Row], sampled: Sequence[SampledToken]) -> list[SampledToken]:
    """sampled in the order of rows."""
    found: dict[int, list[SampledToken]] = {}
    for one in sampled:
        found.setdefault(one.sequence, []).append(one)
    return [one for row in rows for one in found.get(row.sequence, ())]
