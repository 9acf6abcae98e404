"""A step of one token a sequence whose tokens stay on the device.

See launch_ahead.py. The host's copy of the tokens is made behind the step that
gives them, so that reading it does not wait for the step after. Knows no weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernels.sampling.naive import NAN_TOKEN
from runner.backends.backend import BackendError, Row, RowFault, SampledToken
from runner.backends.torch.cuda.launch_ahead import PendingStep
from runner.backends.torch.sampling import NAN_FAULT, TorchSampler

Tensor = Any
Trim = Callable[[int, int], object]  # a sequence to a length


class LaunchedStep(PendingStep):
    """See launch_ahead.PendingStep. drawn int64 [rows]: on the device, -1 for logits of NaN."""

    def __init__(self, rows: Sequence[Row], drawn: Tensor, trim: Trim) -> None:
        """Counts the step of the rows' samplers."""
        self._rows = {row.sequence: row for row in rows}
        self._places = {row.sequence: at for at, row in enumerate(rows)}
        self._drawn = drawn
        self._trim = trim
        self._host, self._ready = _to_host(drawn)
        for row in rows:
            _count(row, 1)

    def tokens_of(self, rows: Sequence[Row]) -> Tensor:
        """The tokens of these rows' sequences int64 [rows], on the device; 0 in place of -1,
        which is no token to compute: what follows it is not used."""
        places = [self._places[row.sequence] for row in rows]
        drawn = self._drawn
        if places != list(range(len(drawn))):
            index = torch.tensor(places)
            if drawn.is_cuda:
                index = index.pin_memory().to(drawn.device, non_blocking=True)
            drawn = drawn[index]
        return drawn.clamp_min(0)

    def collect(self) -> list[SampledToken]:
        try:
            if self._ready is not None:
                self._ready.synchronize()
        except RuntimeError as error:
            raise BackendError(f"computing a step failed: {error}") from error
        tokens = self._host.tolist()
        found = {one: tokens[self._places[one]] for one in self._rows}
        sampled = [SampledToken(one, token) for one, token in found.items() if token != NAN_TOKEN]
        faulty = [one for one, token in found.items() if token == NAN_TOKEN]
        if faulty:
            raise RowFault(NAN_FAULT, sampled=sampled, sequences=faulty)
        return sampled

    def drop(self, sequence: int) -> None:
        row = self._rows.pop(sequence)
        _count(row, -1)
        self._trim(sequence, row.position)


def _count(row: Row, change: int) -> None:
    assert isinstance(row.sampler, TorchSampler)
    row.sampler.step += change


def _to_host(drawn: Tensor) -> tuple[Tensor, Any]:
    """The tokens in the machine's memory, and what tells when they are there."""
    if not drawn.is_cuda:
        return drawn, None
    host = torch.empty(drawn.shape, dtype=drawn.dtype, pin_memory=True)
    host.copy_(drawn, non_blocking=True)
    ready = torch.cuda.Event()
    ready.record()
    return host, ready
