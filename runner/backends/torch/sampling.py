"""Choosing the tokens of a step from its logits.

tests/sampling_definition.py says what it means. On a GPU the rows whose parameters its kernel
knows are drawn there together, in one go; all others one by one on the host, by the sampler that
the llamacpp backend has. On a CPU that is as fast. Knows nothing of the cache.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kernels import ops
from kernels.sampling.naive import NAN_TOKEN
from runner.backends.backend import BackendError, Row, RowFault, SampledToken, TokenMask
from runner.backends.host_sampling.chain import CandidateArray, active_steps
from runner.backends.host_sampling.rows import RowSampler
from runner.backends.host_sampling.sampler import HostSampler
from runner.types import SamplingParams

Tensor = Any
_KERNEL_STEPS = frozenset({"top_k", "top_p", "min_p"})  # of ops.sample
_GREEDY = SamplingParams(temperature=0, top_k=0, top_p=1.0)
NAN_FAULT = (
    "the model produced invalid probabilities (NaN) for the next token; its weights may be"
    " damaged or too large for the type they are computed in"
)


class TorchSampler(HostSampler):
    """See runner.backends.backend.Sampler.

    greedy: the highest raw logit is its choice. basic: it is drawn by temperature, top_k, top_p
    and min_p alone, with seed and step, the number of tokens drawn before.
    """

    def __init__(self, params: SamplingParams, candidates: CandidateArray, vocabulary: int) -> None:
        """Raises InvalidRequest for a bias or penalty that the vocabulary cannot have."""
        super().__init__(params, candidates, vocabulary)
        marked = self._adjustment.active or params.watermark
        unchanged = not marked and params.logprobs is None
        self.greedy = unchanged and params.temperature <= 0
        basic = unchanged and _KERNEL_STEPS.issuperset(active_steps(params))
        self.basic = self.greedy or basic
        self.seed = secrets.randbits(62) if params.seed is None else params.seed
        self.step = 0


class BatchSampler:
    """Samples the rows of one step after the other; one thread at a time."""

    def __init__(self, vocabulary: int, *, on_device: bool = False) -> None:
        """on_device: basic rows are drawn where their logits are."""
        self._vocabulary = vocabulary
        self._on_device = on_device
        self._rows = RowSampler(vocabulary)
        self._column_samplers: list[TorchSampler] = []
        self._column_device: Any = None
        self._cached_columns: tuple[Tensor, ...] = ()

    def create(self, params: SamplingParams) -> TorchSampler:
        """See Backend.create_sampler."""
        return TorchSampler(params, self._rows.candidates, self._vocabulary)

    def sample(self, rows: Sequence[Row], logits: Tensor) -> list[SampledToken]:
        """The token of each row, and one after each token of its draft that the one before it
        confirms; from logits float32 [outputs, vocabulary], of each row one and as many as its
        draft has. Raises RowFault."""
        tokens = self.draw(rows, logits).tolist() if self._on_device else _greedy_tokens(logits)
        samplers = _samplers(rows)
        if len(tokens) == len(rows) and min(tokens) >= 0 and self._all_chosen(rows, samplers):
            for sampler in samplers:
                sampler.step += 1
            return [
                SampledToken(row.sequence, token) for row, token in zip(rows, tokens, strict=True)
            ]
        host: NDArray[np.float32] | None = None
        sampled: list[SampledToken] = []
        faulty: list[int] = []
        at = 0
        for row, sampler in zip(rows, samplers, strict=True):
            outputs = slice(at, at + 1 + len(row.draft))
            if self._chosen(row, sampler):
                found = _confirmed(row, tokens[outputs])
            else:
                host = logits.cpu().numpy() if host is None else host
                found = self._rows.sample(row, host[outputs][: _usable(tokens[outputs])])
            if not found:
                faulty.append(row.sequence)
            sampled += found
            sampler.step += len(found)
            at = outputs.stop
        if faulty:
            raise RowFault(NAN_FAULT, sampled=sampled, sequences=faulty)
        return sampled

    def draws(self, row: Row) -> bool:
        """Whether draw gives the row's token."""
        return isinstance(row.sampler, TorchSampler) and self._chosen(row, row.sampler)

    def draw(self, rows: Sequence[Row], logits: Tensor) -> Tensor:
        """For each output, on the device, the token of a row that draws says yes to, -1 where
        there are NaN; of another row the likeliest."""
        if not self._on_device:
            return torch.tensor(_greedy_tokens(logits))
        return self._draw_on_device(rows, _samplers(rows), logits)

    def _all_chosen(self, rows: Sequence[Row], samplers: Sequence[TorchSampler]) -> bool:
        if self._on_device:
            return all(sampler.basic for sampler in samplers)
        greedy = all(sampler.greedy for sampler in samplers)
        return greedy and all(row.mask is None for row in rows)

    def _chosen(self, row: Row, sampler: TorchSampler) -> bool:
        """Whether the row's token has been chosen with those of the others."""
        return sampler.basic if self._on_device else sampler.greedy and row.mask is None

    def _draw_on_device(
        self, rows: Sequence[Row], samplers: Sequence[TorchSampler], logits: Tensor
    ) -> Tensor:
        outputs = [
            (mask, sampler)
            for row, sampler in zip(rows, samplers, strict=True)
            for mask in row.masks
        ]
        steps = [
            sampler.step + offset
            for row, sampler in zip(rows, samplers, strict=True)
            for offset in range(1 + len(row.draft))
        ]
        device = logits.device
        temperature, top_k, top_p, min_p, seeds = self._columns(
            [sampler for _, sampler in outputs], device
        )
        at = _to_device(torch.tensor(steps), device)
        draw = ops.Draw(temperature, top_k, top_p, min_p, seeds, at)
        return ops.sample(logits, draw, self._masks(outputs, device))

    def _columns(self, samplers: list[TorchSampler], device: Any) -> tuple[Tensor, ...]:
        """What stays the same for the samplers, on the device: made when they are others than
        those of the last step."""
        if samplers != self._column_samplers or self._column_device != device:
            params = [one.params if one.basic else _GREEDY for one in samplers]
            columns = (
                torch.tensor([one.temperature for one in params], dtype=torch.float32),
                torch.tensor([one.top_k for one in params]),
                torch.tensor([one.top_p for one in params], dtype=torch.float32),
                torch.tensor([one.min_p for one in params], dtype=torch.float32),
                torch.tensor([one.seed for one in samplers]),
            )
            self._column_samplers, self._column_device = samplers, device
            self._cached_columns = tuple(_to_device(column, device) for column in columns)
        return self._cached_columns

    def _masks(
        self, outputs: Sequence[tuple[TokenMask | None, TorchSampler]], device: Any
    ) -> Tensor | None:
        """The masks of the basic rows, int32 [outputs, words]; all bits where there is none."""
        if not any(mask for mask, _ in outputs):
            return None
        words = np.full((len(outputs), (self._vocabulary + 31) // 32), -1, np.int32)
        places = words.view(np.uint8)
        for at, (mask, sampler) in enumerate(outputs):
            if mask is not None and sampler.basic:
                bits = np.frombuffer(mask.bits(), np.uint8)[: places.shape[1]]
                places[at, : len(bits)] = bits
        return _to_device(torch.from_numpy(words), device)


def _to_device(tensor: Tensor, device: Any) -> Tensor:
    """The tensor on the device. Only from pinned memory is it copied without waiting for what
    runs there."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def _samplers(rows: Sequence[Row]) -> list[TorchSampler]:
    found = [row.sampler for row in rows if isinstance(row.sampler, TorchSampler)]
    if len(found) < len(rows):
        wrong = next(row for row in rows if not isinstance(row.sampler, TorchSampler))
        raise BackendError(f"row of sequence {wrong.sequence}: not a sampler of this backend")
    return found


def _confirmed(row: Row, tokens: Sequence[int]) -> list[SampledToken]:
    """Of the tokens chosen after the row and after each of its draft those that count: each up to
    the first that is not the draft's next one."""
    found: list[SampledToken] = []
    for token, proposed in zip(tokens, (*row.draft, None), strict=True):
        if token == NAN_TOKEN:
            break
        found.append(SampledToken(row.sequence, token))
        if token != proposed:
            break
    return found


def _usable(tokens: Sequence[int]) -> int:
    """How many outputs there are before the first whose logits cannot be used."""
    return tokens.index(NAN_TOKEN) if NAN_TOKEN in tokens else len(tokens)


def _greedy_tokens(logits: Tensor) -> list[int]:
    """For each row the token of the highest logit, of equal ones the lowest; -1 where that is
    NaN or no finite number. On a CPU NumPy takes a sixth of torch's time."""
    rows = logits.cpu().numpy()
    tokens = rows.argmax(axis=-1)
    usable = np.isfinite(rows[np.arange(len(rows)), tokens])
    found: list[int] = np.where(usable, tokens, NAN_TOKEN).tolist()
    return found
