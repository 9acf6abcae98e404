"""What BERT reads in place of tokens when it is given two texts.

A cross-encoder of BERT's learned which text a token is of from a vector that is added to that of
the token. llama.cpp always adds the one of the first text, so that for the second one the vectors
of the tokens are given to it, with the difference already in them. Owns nothing but a view of the
model file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from registry.formats.gguf.header import GgufHeader, TensorInfo
from registry.formats.gguf.reader import read_header

Vectors = NDArray[np.float32]  # [tokens, width]


class SegmentEmbeddings:
    """The word vectors of a model, and what sets the second text apart."""

    def __init__(self, header: GgufHeader, words: TensorInfo, types: TensorInfo) -> None:
        """words, types: the vectors of the vocabulary and of the two texts."""
        self._words = _rows(header, words)
        self._word_type = gguf.GGMLQuantizationType[words.type]
        first, second = gguf.quants.dequantize(
            _rows(header, types)[:2], gguf.GGMLQuantizationType[types.type]
        )
        self._difference = np.asarray(second - first, np.float32)

    def vectors(self, pairs: Sequence[tuple[Sequence[int], int]]) -> Vectors:
        """The input of each pair of texts, one after the other. A pair: its tokens, and where the
        second text begins."""
        tokens = [token for pair, _ in pairs for token in pair]
        rows = gguf.quants.dequantize(self._words[tokens], self._word_type)
        vectors = np.array(rows, np.float32)
        at = 0
        for pair, second in pairs:
            vectors[at + second : at + len(pair)] += self._difference
            at += len(pair)
        return vectors


def read_segment_embeddings(path: Path) -> SegmentEmbeddings | None:
    """Those of a model file; None for a model that does not tell two texts apart."""
    header = read_header(path)
    tensors = {tensor.name: tensor for tensor in header.tensors}
    words, types = tensors.get("token_embd.weight"), tensors.get("token_types.weight")
    of_bert = header.metadata.get("tokenizer.ggml.model") == "bert"
    if not of_bert or words is None or types is None or types.dimensions[-1] < 2:
        return None
    return SegmentEmbeddings(header, words, types)


def _rows(header: GgufHeader, tensor: TensorInfo) -> NDArray[np.generic]:
    """A view of a matrix, row by row, as it is stored."""
    count = tensor.dimensions[1] if len(tensor.dimensions) > 1 else 1
    start = header.data_offset + tensor.offset
    return np.memmap(header.path, np.uint8, "r", start, (count, tensor.size_bytes // count))
