"""What sampling means, in PyTorch; the CPU path, vectorized over the rows.

The order and the defaults are those of hearth: top_k, top_p, min_p, each over what the ones before
left and at temperature 1, then the temperature and the draw. The draw is the Gumbel trick: the
greatest of probability / exponential variate, where the variate is a function of seed, step and
token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from kernels.sampling.noise import GROUP, Keys, exponentials, row_keys

# Of rows without top_k, as many of the best are sorted, the more only where top_p needs them.
_FIRST_SORTED = (512, 16384, 1 << 31)
# Rows are drawn in groups whose logits stay in a core's cache (1 MB).
_LOGITS_AT_ONCE = 1 << 18
NAN_TOKEN = -1


@dataclass(frozen=True, slots=True)
class Draw:
    """How each row is drawn, tensors [S]: temperature float32 (0 or less: the highest logit, of
    equal ones the lowest id), top_k (0 or less: all), top_p float32 (1 or more: all), min_p float32
    (0 or less: all), seeds and steps int64: the same pair draws the same token from the same
    logits, whatever else is in the batch."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seeds: Tensor
    steps: Tensor

    def rows(self, which: Tensor) -> Draw:
        """Of some rows only."""
        fields = (self.temperature, self.top_k, self.top_p, self.min_p, self.seeds, self.steps)
        return Draw(*(field[which] for field in fields))


def sample(logits: Tensor, draw: Draw, mask: Tensor | None = None) -> Tensor:
    """One token a row, int64 [S], of logits float32 [S, V]; -1 where a row holds a NaN. mask int32
    [S, ceil(V / 32)]: bit i of word w allows token 32 w + i."""
    if mask is not None:
        logits = apply_mask(logits, mask)
    grouped = _grouped(logits, -torch.inf)
    peaks = grouped.amax(dim=-1)
    best = peaks.amax(dim=-1)
    tokens = _argmax(grouped, peaks)
    drawn = (draw.temperature > 0) & (draw.top_k != 1) & best.isfinite()
    filtered = drawn & ((draw.top_k > 0) | (draw.top_p < 1))
    at_once = max(1, _LOGITS_AT_ONCE // logits.shape[1])
    for rows, method in ((filtered, _draw_sorted), (drawn & ~filtered, _draw_all)):
        for which in rows.nonzero()[:, 0].split(at_once):
            if len(which) == len(logits) > 0:
                tokens = method(grouped, best, draw)
            elif len(which):
                tokens[which] = method(grouped[which], best[which], draw.rows(which))
    return tokens.masked_fill_(best.isnan(), NAN_TOKEN)


def apply_mask(logits: Tensor, mask: Tensor) -> Tensor:
    """logits [S, V] with -inf where the token's bit in mask int32 [S, ceil(V / 32)] is 0; the
    lowest bit of a word is its first token."""
    flat = np.asarray(mask.cpu().contiguous()).view(np.uint8)
    bits = torch.from_numpy(np.unpackbits(flat, axis=1, bitorder="little")).to(logits.device)
    return logits.masked_fill(bits[:, : logits.shape[1]] == 0, -torch.inf)


def _grouped(rows: Tensor, filler: float) -> Tensor:
    """rows [S, V] as [S, ceil(V / GROUP), GROUP]."""
    short = -rows.shape[1] % GROUP
    whole = functional.pad(rows, (0, short), value=filler) if short else rows
    return whole.unflatten(1, (-1, GROUP))


def _argmax(grouped: Tensor, peaks: Tensor) -> Tensor:
    """The lowest token id with the highest logit. In two steps: torch's argmax over a vocabulary
    of 150,000 takes 0.7 ms, its amax 10 µs."""
    group = peaks.argmax(dim=-1)
    return group * GROUP + _of_group(grouped, group).argmax(dim=-1)


def _of_group(grouped: Tensor, group: Tensor) -> Tensor:
    return grouped[torch.arange(len(group), device=group.device), group]


def _draw_all(grouped: Tensor, best: Tensor, draw: Draw) -> Tensor:
    """The draw of rows without top_k and top_p: first a group of tokens, then one of it. Equal in
    distribution to one draw over all, with V / GROUP + GROUP random numbers instead of V."""
    weights = (grouped - best[:, None, None]).div_(draw.temperature[:, None, None]).exp_()
    if bool((draw.min_p > 0).any()):
        weights.masked_fill_(grouped < _min_p_floor(best, draw)[:, None, None], 0)
    keys = row_keys(draw.seeds, draw.steps)
    group = _draw_group(weights.sum(dim=-1), keys)
    ids = group[:, None] * GROUP + torch.arange(GROUP, device=grouped.device)
    return group * GROUP + (_of_group(weights, group) / exponentials(keys, ids)).argmax(dim=-1)


def _draw_group(sums: Tensor, keys: Keys) -> Tensor:
    groups = torch.arange(sums.shape[1], device=sums.device)
    return (sums / exponentials(keys, -1 - groups)).argmax(dim=-1)


def _draw_sorted(grouped: Tensor, best: Tensor, draw: Draw) -> Tensor:
    """The same draw among the tokens that top_k, top_p and min_p leave."""
    values, ids = _candidates(grouped.flatten(1), draw)
    weights = ((values - best[:, None]) / draw.temperature[:, None]).exp()
    weights.masked_fill_(_filtered_out(values, grouped.flatten(1), draw), 0)
    weights.masked_fill_(values < _min_p_floor(best, draw)[:, None], 0)
    of_group = ids // GROUP
    sums = weights.new_zeros(grouped.shape[:2]).scatter_add_(1, of_group, weights)
    numbers = torch.arange(-1, -1 - sums.shape[1], -1, device=ids.device)
    numbers = torch.cat((numbers.expand(len(ids), -1), ids), dim=1)
    noise = exponentials(row_keys(draw.seeds, draw.steps), numbers)
    group = (sums / noise[:, : sums.shape[1]]).argmax(dim=-1, keepdim=True)
    scores = (weights / noise[:, sums.shape[1] :]).masked_fill_(of_group != group, -1)
    return ids.gather(1, scores.argmax(dim=-1, keepdim=True))[:, 0]


def _candidates(logits: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
    """The best logits, descending, and their ids [R, N]: at least what top_k and top_p leave."""
    size = logits.shape[1]
    total = logits.logsumexp(-1) if bool((draw.top_k <= 0).any()) else None
    for first in _FIRST_SORTED:
        limits = torch.where(draw.top_k > 0, draw.top_k, first)
        values, ids = logits.topk(min(int(limits.max()), size), dim=-1)
        if total is None or values.shape[1] == size:
            break
        held = torch.exp(values.logsumexp(-1) - total)
        if not bool(((draw.top_k <= 0) & (held < draw.top_p)).any()):
            break
    return values, ids


def _filtered_out(values: Tensor, logits: Tensor, draw: Draw) -> Tensor:
    """Which of the descending values [R, N] top_k or top_p take away."""
    rank = torch.arange(values.shape[1], device=values.device)
    ranked_out = (draw.top_k[:, None] > 0) & (rank >= draw.top_k[:, None])
    values = values.masked_fill(ranked_out, -torch.inf)
    total = values.logsumexp(-1)
    if bool((draw.top_k <= 0).any()):
        total = torch.where(draw.top_k > 0, total, logits.logsumexp(-1))
    mass = torch.exp(values - total[:, None])
    full = mass.cumsum(dim=-1) - mass >= draw.top_p[:, None]
    return ranked_out | (full & (rank > 0) & (draw.top_p[:, None] < 1))


def _min_p_floor(best: Tensor, draw: Draw) -> Tensor:
    return best + draw.min_p.clamp(0, 1).log()  # -inf at 0
