"""From the matrix that a request has in place of a prompt to what the engine computes.

Owns the numbers by which its vectors are called among tokens (runner.engine.images): fresh ones for
each request, so that nobody else's prompt is taken for it. One thread at a time.
"""

from __future__ import annotations

from runner.backends.backend import Capacity, ImagePart
from runner.errors import InvalidRequest, Unsupported
from runner.worker.tensor_file import read_vectors
from runner.worker.truncation import EncodedPrompt

_PARAM = "prompt_embeds"
_LAST = -(2**31)
_MAX_PART_TOKENS = 256


class EmbeddedPrompts:
    """Of one model."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._next = -1

    def read(self, data: bytes) -> EncodedPrompt:
        """The prompt. Raises Unsupported where the backend takes no vectors, InvalidRequest for
        what is no matrix of the model's width."""
        width = self._capacity.input_width
        if width is None:
            raise Unsupported(
                f"{_PARAM}: this model's backend takes tokens only; load it with PARAMETER backend"
                " torch",
                param=_PARAM,
            )
        vectors = read_vectors(data, _PARAM)
        if vectors.shape[1] != width:
            raise InvalidRequest(
                f"{_PARAM} has vectors of {vectors.shape[1]} numbers, the model's have {width}",
                param=_PARAM,
            )
        if self._next - 2 * len(vectors) < _LAST:
            self._next = -1  # what had these numbers has long left the cache
        size = min(_MAX_PART_TOKENS, self._capacity.batch_tokens)
        tokens: list[int] = []
        parts: dict[int, ImagePart] = {}
        for start in range(0, len(vectors), size):
            piece = vectors[start : start + size]
            parts[self._next] = ImagePart(piece, len(piece))
            tokens += range(self._next, self._next - len(piece), -1)
            self._next -= len(piece) + 1  # so that no two runs are next to each other
        return EncodedPrompt(tokens, "", parts=parts)
