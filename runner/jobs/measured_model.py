"""A model opened to be measured, whatever computes it, and a text cut into what it is measured on.

Knows nothing of what is made of the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from llama_cpp import llama_cpp as native
from numpy.typing import NDArray

from registry.formats.gguf.reader import read_header
from runner.backends.host_sampling.tokenizer import LlamaCppTokenizer
from runner.errors import InvalidRequest

DEFAULT_CONTEXT = 512
MIN_CONTEXT = 32
MAX_TEXT_BYTES = 256 << 20


class MeasuredModel(Protocol):
    """context: tokens of a chunk. threads: for work on outputs, as many as the model is computed
    with."""

    context: int
    threads: Executor

    def chunks(self, text: str) -> list[NDArray[np.int32]]:
        """See text_chunks."""

    def run(self, tokens: NDArray[np.int32], first: int) -> Iterator[NDArray[np.float32]]:
        """Compute a chunk from an empty cache; gives the logits (rows, vocabulary) of the
        positions from first on, step by step. They are valid until the next step."""


def text_chunks(
    vocabulary: Any, encoder: LlamaCppTokenizer, text: str, context: int
) -> list[NDArray[np.int32]]:
    """The text as chunks of context tokens that do not overlap; what is left over is dropped.
    Where the model wants a BOS, it stands in place of each chunk's first token, as in
    llama-perplexity. vocabulary: llama.cpp's. Raises InvalidRequest for a text of less than two
    chunks."""
    adds_bos = bool(native.llama_vocab_get_add_bos(vocabulary))
    tokens = np.asarray(encoder.encode(text, add_bos=adds_bos, parse_special=False), np.int32)
    count = len(tokens) // context
    if count < 2:
        raise InvalidRequest(
            f"the text has {len(tokens)} tokens; measuring at a context of {context} needs"
            f" {2 * context}: give more text or a smaller context"
        )
    chunks = tokens[: count * context].reshape(count, context).copy()
    if adds_bos:
        chunks[:, 0] = native.llama_vocab_bos(vocabulary)
    return list(chunks)


def context_of(path: Path, wanted: int | None) -> int:
    """The tokens of a chunk for a model file. Raises InvalidRequest for what the model was not
    trained for, and for one that has no perplexity."""
    header = read_header(path)
    if header.is_embedding:
        raise InvalidRequest("the model is an embedding model and has no perplexity")
    trained = header.context_length or DEFAULT_CONTEXT
    context = wanted or min(DEFAULT_CONTEXT, trained)
    if not MIN_CONTEXT <= context <= trained:
        raise InvalidRequest(
            f"invalid context of {context} tokens, expected {MIN_CONTEXT} to {trained}"
        )
    return context


def read_text(path: Path) -> str:
    """The text of a file. Raises InvalidRequest when it is too long or no UTF-8, OSError."""
    size_bytes = path.stat().st_size
    if size_bytes > MAX_TEXT_BYTES:
        raise InvalidRequest(f"the text has {size_bytes} bytes, at most {MAX_TEXT_BYTES}")
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"the text is not UTF-8: invalid byte at position {error.start}"
        ) from None
