"""Rows of images, computed from embeddings.

llama.cpp takes tokens or embeddings in one batch, never both, so an image is computed by itself,
in pieces that fit a batch, or in one where its tokens see each other. Owns the arrays that the
native batch points into.
"""

from __future__ import annotations

import ctypes

import numpy as np
from llama_cpp import llama_cpp as native

from runner.backends.backend import BackendError, ImagePart, Row
from runner.backends.host_sampling.logits import LogitRows
from runner.backends.llamacpp.context import Context
from runner.backends.llamacpp.vision.positions import ImageSpan, SequencePositions

_SECTIONS = 4  # of a position in the batches of models with M-RoPE


class ImageBatch:
    """Computes images on a context."""

    def __init__(self, context: Context, positions: SequencePositions | None) -> None:
        """positions: for a model where they are not the tokens' numbers."""
        self._context = context
        self._positions = positions
        self._capacity: int = native.llama_n_batch(context.handle)
        self._sequence = np.zeros(1, np.int32)
        pointers = np.full(self._capacity, self._sequence.ctypes.data, np.uintp)
        self._ones = np.ones(self._capacity, np.int32)
        self._pointers = pointers
        self._outputs = np.zeros(self._capacity, np.int8)

    def decode(self, row: Row) -> LogitRows | None:
        """Compute the row's image; for a row with a sampler, a copy of the logits
        [1, vocabulary] after it. Raises PoolFull, with a part of it in the cache, or
        BackendError."""
        image = row.image
        assert image is not None
        if len(row.tokens) != image.tokens or row.draft or row.scoring is not None:
            raise BackendError(f"the row of sequence {row.sequence} is not one whole image")
        if not image.causal and image.tokens > self._capacity:
            raise BackendError(
                f"an image of {image.tokens} tokens is larger than a batch of {self._capacity}"
            )
        self._sequence[0] = row.sequence
        if image.causal:
            self._decode(row, image)
        else:
            native.llama_set_causal_attn(self._context.handle, False)
            try:
                self._decode(row, image)
            finally:
                native.llama_set_causal_attn(self._context.handle, True)
        if self._positions is not None:
            placed = ImageSpan(row.position, image.tokens, image.advance)
            self._positions.append(row.sequence, placed)
        return None if row.sampler is None else self._context.logits(1).copy()

    def _decode(self, row: Row, image: ImagePart) -> None:
        for start in range(0, image.tokens, self._capacity):
            end = min(start + self._capacity, image.tokens)
            last = row.sampler is not None and end == image.tokens
            self._outputs[:] = 0
            self._outputs[end - start - 1] = last
            vectors = np.ascontiguousarray(image.vectors[start:end], np.float32)
            places = self._token_positions(row, image, start, end)
            batch = native.llama_batch(
                n_tokens=end - start,
                token=None,
                embd=vectors.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
                pos=places.ctypes.data_as(ctypes.POINTER(native.llama_pos)),
                n_seq_id=self._ones.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
                seq_id=self._pointers.ctypes.data_as(
                    ctypes.POINTER(ctypes.POINTER(native.llama_seq_id))
                ),
                logits=self._outputs.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
            )
            self._context.decode_native(batch)

    def _token_positions(
        self, row: Row, image: ImagePart, start: int, end: int
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
        """The positions of the tokens from start to end: [tokens], or [4, tokens] with M-RoPE."""
        if self._positions is None:
            return np.arange(row.position + start, row.position + end, dtype=np.int32)
        first = self._positions.position(row.sequence, row.position)
        if image.places is None or image.places.shape != (_SECTIONS, image.tokens):
            raise BackendError("the image has no positions for this model")
        places = image.places[:, start:end].copy()
        places[:3] += first
        return places
