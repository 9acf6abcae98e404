"""What a checked GGUF header says: the metadata, the tensors, and the figures derived from them.

Knows nothing of reading and checking.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Final

from registry.formats.gguf.fim import FimTokens
from registry.formats.gguf.types import FILE_TYPES, TENSOR_TYPES
from registry.formats.gguf.values import LazyArray

_NAME_CHARACTERS = 32
_UNITS = {"T": 10**12, "B": 10**9, "M": 10**6, "K": 10**3}
_SIZE_LABEL = re.compile(r"(?:(\d{1,4})x)?(\d{1,4}(?:\.\d{1,3})?)([TBMK])(?:-\w{1,12})?", re.ASCII)


SPEECH: Final = ("whisper", "piper")  # architectures that read or make sound


class CHECKPOINT:
    """Keys of a file that holds a quantized checkpoint as it was: its
    config.json, the type of each tensor in safetensors' words, the number of weights, and what the
    quantization is called. The last two also of one that holds the files of a speech model, each
    as a tensor of bytes."""

    config = "hearth.checkpoint.config"
    types = "hearth.checkpoint.types"
    parameters = "hearth.checkpoint.parameters"
    quantization = "hearth.checkpoint.quantization"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor. dimensions: as GGUF has them, the fastest first. offset: in the data section."""

    name: str
    dimensions: tuple[int, ...]
    type: str
    offset: int
    size_bytes: int

    @property
    def elements(self) -> int:
        """The number of weights."""
        return prod(self.dimensions)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """A checked header. Figures that the file does not give are None.

    metadata: str, int, float, bool, tuple; arrays of more than 64 elements are LazyArray.
    """

    path: Path
    version: int
    metadata: Mapping[str, Any]
    tensors: tuple[TensorInfo, ...]
    file_size_bytes: int
    data_offset: int
    fim: FimTokens = field(default_factory=FimTokens)

    @property
    def architecture(self) -> str:
        """general.architecture, such as "llama"."""
        return str(self.metadata["general.architecture"])

    @property
    def keeps_checkpoint(self) -> bool:
        """The tensors are those of a quantized checkpoint, which llama.cpp cannot compute."""
        return self._text(CHECKPOINT.config) is not None

    @property
    def is_speech(self) -> bool:
        """The tensors are the files of a speech model."""
        return self.architecture in SPEECH and CHECKPOINT.parameters in self.metadata

    @property
    def parameter_count(self) -> int:
        """The weights of all tensors; of a checkpoint kept as it was, what it says."""
        kept = self.metadata.get(CHECKPOINT.parameters)
        if (self.keeps_checkpoint or self.is_speech) and type(kept) is int and kept > 0:
            return kept
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def parameter_size(self) -> str:
        """The weights for people, "5.2M" or "7.6B": as the file's author says, where its tensors
        hold about that many. Some hold the embedding twice, and would seem larger."""
        count, label = self.parameter_count, self.metadata.get("general.size_label")
        found = _SIZE_LABEL.fullmatch(label) if isinstance(label, str) else None
        if found is not None:
            said = int(found[1] or 1) * float(found[2]) * _UNITS[found[3]]
            if said / 2 <= count <= said * 2:
                return found[0]
        return format_count(count)

    @property
    def tensors_size_bytes(self) -> int:
        """The bytes of all tensors."""
        return sum(tensor.size_bytes for tensor in self.tensors)

    @property
    def context_length(self) -> int | None:
        """The tokens it was trained for."""
        return self._number("context_length")

    @property
    def block_count(self) -> int | None:
        """Its layers."""
        return self._number("block_count")

    @property
    def embedding_length(self) -> int | None:
        """The width of the hidden state."""
        return self._number("embedding_length")

    @property
    def head_count(self) -> int | None:
        """Query heads of a layer; the most, where layers differ."""
        return _largest(self.architecture_value("attention.head_count"))

    @property
    def head_count_kv(self) -> int | None:
        """Key and value heads of a layer; the most, where layers differ."""
        return _largest(self.head_counts_kv)

    @property
    def head_counts_kv(self) -> tuple[int, ...] | None:
        """Key and value heads of each layer; 0 for a layer without attention."""
        blocks, heads = self.block_count, self.architecture_value("attention.head_count_kv")
        if heads is None:
            heads = self.architecture_value("attention.head_count")
        if blocks is None or heads is None:
            return None
        if isinstance(heads, LazyArray):
            return tuple(heads.load())
        return heads if isinstance(heads, tuple) else (heads,) * blocks

    @property
    def key_length(self) -> int | None:
        """The width of a key of one head."""
        return self._head_width("attention.key_length")

    @property
    def value_length(self) -> int | None:
        """The width of a value of one head."""
        return self._head_width("attention.value_length")

    @property
    def kv_elements_per_token(self) -> int | None:
        """Numbers of keys and values that a token of context takes over all layers."""
        heads, key, value = self.head_counts_kv, self.key_length, self.value_length
        if heads is None or key is None or value is None:
            return None
        return sum(heads) * (key + value)

    @property
    def expert_count(self) -> int | None:
        """Experts of a mixture-of-experts model."""
        return self._number("expert_count")

    @property
    def vocabulary_size(self) -> int | None:
        """Tokens of the vocabulary."""
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        return len(tokens) if tokens is not None else self._number("vocab_size")

    @property
    def chat_template(self) -> str | None:
        """The Jinja source of the model's own chat template."""
        return self._text("tokenizer.chat_template")

    @property
    def is_embedding(self) -> bool:
        """True when the model pools its output into one vector."""
        pooling = self.architecture_value("pooling_type")
        return isinstance(pooling, int) and pooling > 0

    @property
    def split_count(self) -> int:
        """Files that the model is split over; 1 for a whole one."""
        count = self.metadata.get("split.count")
        return count if isinstance(count, int) and count > 1 else 1

    @property
    def quantization(self) -> str:
        """What the file is called: "Q4_K_M"; the type of most weights when it does not say."""
        kept = self._text(CHECKPOINT.quantization)
        is_kept = self.keeps_checkpoint or self.is_speech
        if is_kept and kept and len(kept) <= _NAME_CHARACTERS and kept.isprintable():
            return kept
        file_type = self.metadata.get("general.file_type")
        if isinstance(file_type, int) and file_type in FILE_TYPES:
            return FILE_TYPES[file_type]
        sizes: Counter[str] = Counter()
        for tensor in self.tensors:
            sizes[tensor.type] += tensor.elements
        return sizes.most_common(1)[0][0] if sizes else "unknown"

    def architecture_value(self, key: str) -> Any:
        """The value of <architecture>.key, None when there is none."""
        return self.metadata.get(f"{self.architecture}.{key}")

    def _number(self, key: str) -> int | None:
        value = self.architecture_value(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def _head_width(self, key: str) -> int | None:
        width, heads, embedding = self._number(key), self.head_count, self.embedding_length
        if width is not None or not heads or embedding is None:
            return width
        return embedding // heads


def format_count(count: int) -> str:
    """A number of weights for people, as Ollama writes it: "999", "5.2M", "7.6B", "1.2T"."""
    for unit, size in _UNITS.items():
        if count >= size:
            share = count / size
            return f"{share:.1f}{unit}" if share < 100 else f"{share:.0f}{unit}"
    return str(count)


def tensor_size(type_number: int, elements: int) -> int:
    """The bytes of that many elements of a tensor type."""
    kind = TENSOR_TYPES[type_number]
    return elements // kind.block_size * kind.block_bytes


def _largest(value: Any) -> int | None:
    if isinstance(value, LazyArray):
        value = tuple(value.load())
    if isinstance(value, tuple):
        return max(value, default=None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
