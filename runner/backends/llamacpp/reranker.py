"""Cross-encoders with llama.cpp: how well a document answers a query, both read at once.

Owns what a pair of texts becomes for a model, and what its outputs mean as a score. Computing them
is that of embeddings, with llama.cpp's pooling RANK.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from llama_cpp import llama_cpp as native

from runner.backends.backend import BackendError, Capacity, PairEncoder, Row
from runner.backends.host_sampling.library import chat_template
from runner.backends.host_sampling.tokenizer import LlamaCppTokenizer
from runner.backends.llamacpp.context import Context
from runner.backends.llamacpp.embedding import LlamaCppEmbeddingBackend, metadata
from runner.backends.llamacpp.segment_embeddings import SegmentEmbeddings, read_segment_embeddings
from runner.errors import ModelLoadFailed
from runner.types import EmbeddingForm

_YES_NO_ARCHITECTURES = ("qwen3", "qwen3vl")  # llama.cpp gives the probabilities of "yes" and "no"
_PLACEHOLDER = re.compile(r"\{(query|document)\}")


class RerankerBackend(LlamaCppEmbeddingBackend):
    """See runner.backends.backend.Backend.embed: the vector of a pair is its score alone."""

    def __init__(
        self,
        context: Context,
        capacity: Capacity,
        *,
        step_tokens: int,
        segments: SegmentEmbeddings | None = None,
        separator: int | None = None,
    ) -> None:
        """segments: for models that tell the texts apart, which stand on both sides of the first
        token separator. Raises ModelLoadFailed for outputs that are no score."""
        super().__init__(context, capacity, step_tokens=step_tokens)
        self._outputs = native.llama_model_n_cls_out(context.model)
        yes_and_no = metadata(context.model, "general.architecture") in _YES_NO_ARCHITECTURES
        if self._outputs != (2 if yes_and_no else 1):
            raise ModelLoadFailed(f"the model has {self._outputs} outputs; a reranker has one")
        self._segments = segments
        self._separator = separator

    def _fill(self, rows: Sequence[Row]) -> None:
        super()._fill(rows)
        if self._segments is not None:
            pairs = [(row.tokens, self._second_text_start(row.tokens)) for row in rows]
            self._batch.use_vectors(self._segments.vectors(pairs))

    def _second_text_start(self, tokens: Sequence[int]) -> int:
        """Where the second text begins."""
        wanted = self._separator
        return next((at + 1 for at, token in enumerate(tokens) if token == wanted), len(tokens))

    def _vector(self, sequence: int, form: EmbeddingForm) -> list[float]:
        pointer = native.llama_get_embeddings_seq(self._context.handle, sequence)
        if not pointer:
            raise BackendError("llama.cpp returned no score")
        outputs = np.ctypeslib.as_array(pointer, shape=(self._outputs,)).tolist()
        score = outputs[0] if self._outputs == 2 else sigmoid(outputs[0])
        if not math.isfinite(score):
            raise BackendError("the model produced an invalid score (NaN)")
        return [score]


def sigmoid(value: float) -> float:
    """1 / (1 + exp(-value)), for any value."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    small = math.exp(value)
    return small / (1 + small)


def create_reranker(
    path: Path, context: Context, capacity: Capacity, step_tokens: int
) -> tuple[RerankerBackend, PairEncoder]:
    """The backend of a reranker and what makes its inputs of a query and a document. Raises
    ModelLoadFailed."""
    tokenizer = LlamaCppTokenizer(context.vocabulary)
    around = tokenizer.encode("", add_bos=True, parse_special=False)
    backend = RerankerBackend(
        context,
        capacity,
        step_tokens=step_tokens,
        segments=read_segment_embeddings(path),
        separator=around[-1] if around else None,
    )
    template = chat_template(context.model, "rerank")
    if template:
        return backend, template_encoder(tokenizer, template)
    return backend, separator_encoder(tokenizer)


def separator_encoder(tokenizer: LlamaCppTokenizer) -> PairEncoder:
    """[CLS] query [SEP] document [SEP] as BERT has it, or <s> query </s></s> document </s> as
    RoBERTa: what the vocabulary puts around a text says which."""
    around = tokenizer.encode("", add_bos=True, parse_special=False)
    first, last = around[:1], around[-1:] if len(around) > 1 else []
    if not last and tokenizer.eos is not None:
        last = [tokenizer.eos]
    between = last * 2 if last and tokenizer.text(last[0]) == "</s>" else last

    def pair(query: str, document: str, max_tokens: int | None = None) -> list[int]:
        texts = [
            tokenizer.encode(text, add_bos=False, parse_special=False, max_tokens=max_tokens)
            for text in (query, document)
        ]
        return [*first, *texts[0], *between, *texts[1], *last]

    return pair


def template_encoder(tokenizer: LlamaCppTokenizer, template: str) -> PairEncoder:
    """A template with {query} and {document}. Its own control tokens count, those that stand in
    the texts do not."""
    parts = _template_parts(tokenizer, template)

    def pair(query: str, document: str, max_tokens: int | None = None) -> list[int]:
        texts = {"query": query, "document": document}
        tokens: list[int] = []
        for part in parts:
            if isinstance(part, int):
                tokens.append(part)
            else:
                text = _PLACEHOLDER.sub(lambda place: texts[place.group(1)], part)
                tokens += tokenizer.encode(
                    text, add_bos=False, parse_special=False, max_tokens=max_tokens
                )
        return tokens

    return pair


def _template_parts(tokenizer: LlamaCppTokenizer, template: str) -> list[int | str]:
    """The template as control tokens and the texts between them."""
    parts: list[int | str] = []
    text = b""
    for token in tokenizer.encode(template, add_bos=False, parse_special=True):
        piece = tokenizer.piece(token)
        text += piece
        if not piece:
            parts += [text.decode("utf-8", "replace"), token] if text else [token]
            text = b""
    return [*parts, text.decode("utf-8", "replace")] if text else parts
