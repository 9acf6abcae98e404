"""Choosing the tokens of a step from its logits.

The meaning is written in runner/engine/sampling.py. On a GPU the rows whose parameters its kernel
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
from runner.backends.backend import BackendError, Row, RowFault, SampledToken
from runner.backends.host_sampling.chain import CandidateArray
from runner.backends.host_sampling.grammar_mask import MaskBuffer
from runner.backends.host_sampling.logprobs import token_logprobs
from runner.backends.host_sampling.sampler import HostSampler
from runner.types import SamplingParams

Tensor = Any
_GREEDY = SamplingParams(temperature=0, top_k=0, top_p=1.0)
NAN_FAULT = (
    "the model computed no usable probabilities (NaN) for the next token; its weights may be"
    " damaged or too large for the type they are computed in"
)


class TorchSampler(HostSampler):
    """See runner.backends.backend.Sampler.

    likeliest: the highest raw logit is its choice. plain: it is drawn by temperature, top_k, top_p
    and min_p alone, with seed and step, the number of tokens drawn before.
    """

    def __init__(self, params: SamplingParams, candidates: CandidateArray, vocabulary: int) -> None:
        """Raises InvalidRequest for a bias or penalty that the vocabulary cannot have."""
        super().__init__(params, candidates, vocabulary)
        unchanged = not self._adjustment.active and params.logprobs is None
        self.likeliest = unchanged and params.temperature <= 0
        self.plain = self.likeliest or (unchanged and _is_plain(params))
        self.seed = secrets.randbits(62) if params.seed is None else params.seed
        self.step = 0


def _is_plain(params: SamplingParams) -> bool:
    return (
        params.mirostat == 0
        and params.typical_p >= 1
        and params.top_n_sigma <= 0
        and params.xtc_probability <= 0
        and params.dynatemp_range <= 0
    )


class BatchSampler:
    """Samples the rows of one step after the other; one thread at a time."""

    def __init__(self, vocabulary: int, *, together: bool = False) -> None:
        """together: plain rows are drawn where their logits are."""
        self._vocabulary = vocabulary
        self._together = together
        self._candidates = CandidateArray(vocabulary)
        self._masking = MaskBuffer(vocabulary)
        self._held: list[TorchSampler] = []
        self._held_on: Any = None
        self._held_columns: tuple[Tensor, ...] = ()

    def create(self, params: SamplingParams) -> TorchSampler:
        """See Backend.create_sampler."""
        return TorchSampler(params, self._candidates, self._vocabulary)

    def sample(self, rows: Sequence[Row], logits: Tensor) -> list[SampledToken]:
        """The token of each row, and one after each token of its draft that the one before it
        confirms; from logits float32 [outputs, vocabulary], of each row one and as many as its
        draft has. Raises RowFault."""
        tokens = self.draw(rows, logits).tolist() if self._together else _likeliest(logits)
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
                found = self._confirm(row, sampler, tokens[outputs], host[outputs])
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
        if not self._together:
            return torch.tensor(_likeliest(logits))
        return self._drawn(rows, _samplers(rows), logits)

    def _all_chosen(self, rows: Sequence[Row], samplers: Sequence[TorchSampler]) -> bool:
        if self._together:
            return all(sampler.plain for sampler in samplers)
        likeliest = all(sampler.likeliest for sampler in samplers)
        return likeliest and all(row.mask is None for row in rows)

    def _chosen(self, row: Row, sampler: TorchSampler) -> bool:
        """Whether the row's token has been chosen with those of the others."""
        return sampler.plain if self._together else sampler.likeliest and row.mask is None

    def _drawn(
        self, rows: Sequence[Row], samplers: Sequence[TorchSampler], logits: Tensor
    ) -> Tensor:
        outputs = [
            (row, sampler)
            for row, sampler in zip(rows, samplers, strict=True)
            for _ in range(1 + len(row.draft))
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
        return ops.sample(
            logits,
            temperature,
            top_k,
            top_p,
            min_p,
            seeds,
            _placed(torch.tensor(steps), device),
            self._masks(outputs, device),
        )

    def _columns(self, samplers: list[TorchSampler], device: Any) -> tuple[Tensor, ...]:
        """What stays the same for the samplers, on the device: made when they are others than
        those of the last step."""
        if samplers != self._held or self._held_on != device:
            params = [one.params if one.plain else _GREEDY for one in samplers]
            columns = (
                torch.tensor([one.temperature for one in params], dtype=torch.float32),
                torch.tensor([one.top_k for one in params]),
                torch.tensor([one.top_p for one in params], dtype=torch.float32),
                torch.tensor([one.min_p for one in params], dtype=torch.float32),
                torch.tensor([one.seed for one in samplers]),
            )
            self._held, self._held_on = samplers, device
            self._held_columns = tuple(_placed(column, device) for column in columns)
        return self._held_columns

    def _masks(self, outputs: Sequence[tuple[Row, TorchSampler]], device: Any) -> Tensor | None:
        """The masks of the plain rows, int32 [outputs, words]; all bits where there is none."""
        if not any(row.mask for row, _ in outputs):
            return None
        words = np.full((len(outputs), (self._vocabulary + 31) // 32), -1, np.int32)
        places = words.view(np.uint8)
        for at, (row, sampler) in enumerate(outputs):
            if row.mask is not None and sampler.plain:
                bits = np.frombuffer(row.mask.bits(), np.uint8)[: places.shape[1]]
                places[at, : len(bits)] = bits
        return _placed(torch.from_numpy(words), device)

    def _confirm(
        self, row: Row, sampler: TorchSampler, tokens: Sequence[int], logits: NDArray[np.float32]
    ) -> list[SampledToken]:
        """The same, chosen one by one. tokens: -1 where the logits cannot be used."""
        found: list[SampledToken] = []
        for at, proposed in enumerate((*row.draft, None)):
            usable = tokens[at] != NAN_TOKEN
            chosen = self._choose(row, sampler, logits[at]) if usable else None
            if chosen is None:
                break
            found.append(chosen)
            if chosen.token != proposed:
                break
        return found

    def _choose(
        self, row: Row, sampler: TorchSampler, logits: NDArray[np.float32]
    ) -> SampledToken | None:
        masked = logits if row.mask is None else self._masking.apply(logits, row.mask)
        token = sampler.choose(masked)
        if token is None:
            return None
        count = sampler.params.logprobs
        if count is None:
            return SampledToken(row.sequence, token)
        logprob, top = token_logprobs(logits, token, count)
        return SampledToken(row.sequence, token, logprob, top)


def _placed(tensor: Tensor, device: Any) -> Tensor:
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


def _likeliest(logits: Tensor) -> list[int]:
    """For each row the token of the highest logit, of equal ones the lowest; -1 where that is
    NaN or no finite number. On a CPU NumPy takes a sixth of torch's time."""
    rows = logits.cpu().numpy()
    tokens = rows.argmax(axis=-1)
    usable = np.isfinite(rows[np.arange(len(rows)), tokens])
    found: list[int] = np.where(usable, tokens, NAN_TOKEN).tolist()
    return found
