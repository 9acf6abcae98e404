"""What a grammar's mask does to logits. Knows nothing of grammars."""

from __future__ import annotations

import numpy as np

from runner.backends.backend import TokenMask
from runner.backends.host_sampling.logits import Logits, TokenIds

_BYTE_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_MAX_WORDS = 64  # of 32 tokens; in a mask with so many that allow any, all of them are looked at
# [256, 8]: what is added to eight logits for each byte of a mask
_BYTE_LOGITS = np.where(_BYTE_BITS, np.float32(0), np.float32(-np.inf)).astype(np.float32)


def few_allowed_tokens(mask: TokenMask, vocabulary: int) -> TokenIds | None:
    """The ids of the tokens that the mask allows, ascending, where they are few; None: they are
    many. Waits for the mask. 8 us for 151,936 tokens."""
    bits = mask.bits()
    words = np.frombuffer(bits, np.uint32, len(bits) // 4)
    if len(words) * 32 < vocabulary or np.count_nonzero(words) > _MAX_WORDS:
        return None
    places = np.flatnonzero(words)
    found = np.flatnonzero(np.unpackbits(words[places].view(np.uint8), bitorder="little"))
    ids: TokenIds = places[found >> 5] * 32 + (found & 31)
    known: TokenIds = ids[ids < vocabulary]
    return known


class MaskBuffer:
    """The memory of one masked row of logits, shared by all rows; one thread at a time."""

    def __init__(self, vocabulary: int) -> None:
        self._bytes = np.empty(((vocabulary + 7) // 8, 8), np.float32)
        self._masked = self._bytes.reshape(-1)[:vocabulary]

    def apply(self, logits: Logits, mask: TokenMask) -> Logits:
        """A copy of logits [vocabulary], good until the next call, with -inf for the tokens that
        the mask forbids. Waits for the mask.

        By a table of bytes 32 us for 151,936 logits, whatever the mask; a copy under a condition
        takes up to 750 us.
        """
        bits = np.frombuffer(mask.bits(), np.uint8)[: len(self._bytes)]
        np.take(_BYTE_LOGITS, bits, axis=0, out=self._bytes, mode="clip")
        self._masked += logits
        return self._masked
