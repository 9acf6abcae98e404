"""What log-probabilities mean, in PyTorch; the CPU path."""

from __future__ import annotations

from torch import Tensor


def gather_logprobs(logits: Tensor, tokens: Tensor, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """(logprob [S] of tokens int64 [S]; the top highest [S, top], descending; their ids int64
    [S, top]), in nats, float32, of logits [S, V]."""
    wide = logits.float()
    total = wide.logsumexp(dim=-1)
    chosen = wide.gather(1, tokens[:, None])[:, 0] - total
    values, ids = wide.topk(min(top, wide.shape[1]), dim=-1)
    return chosen, values - total[:, None], ids
