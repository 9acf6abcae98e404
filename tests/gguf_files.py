"""A small writer of GGUF files for tests: sound ones, and ones that lie on purpose."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from registry.formats.gguf import types

_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class Value:
    """A metadata value with its type number; element: the type of an array's elements."""

    kind: int
    value: Any
    element: int | None = None


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's row in the table; offset and size None: where and what they must be."""

    name: str
    dimensions: tuple[int, ...]
    type: int = 0
    offset: int | None = None


def u16(value: int) -> Value:
    return Value(types.UINT16, value)


def u32(value: int) -> Value:
    return Value(types.UINT32, value)


def i32(value: int) -> Value:
    return Value(types.INT32, value)


def f32(value: float) -> Value:
    return Value(types.FLOAT32, value)


def text(value: str | bytes) -> Value:
    return Value(types.STRING, value)


def texts(values: Sequence[str | bytes]) -> Value:
    return Value(types.ARRAY, values, types.STRING)


def numbers(element: int, values: Sequence[float]) -> Value:
    return Value(types.ARRAY, values, element)


def tokenizer(tokens: Sequence[str | bytes] = ("a", "b", "c", "<0x0A>")) -> dict[str, Value]:
    """A sound vocabulary; its last token is a byte token."""
    kinds = [1] * (len(tokens) - 1) + [6]
    return {
        "tokenizer.ggml.model": text("llama"),
        "tokenizer.ggml.tokens": texts(tokens),
        "tokenizer.ggml.scores": numbers(types.FLOAT32, [0.0] * len(tokens)),
        "tokenizer.ggml.token_type": numbers(types.INT32, kinds),
        "tokenizer.ggml.merges": texts(["a b", "ab c"]),
        "tokenizer.ggml.bos_token_id": u32(0),
        "tokenizer.ggml.eos_token_id": u32(1),
        "tokenizer.chat_template": text("{{ messages }}"),
    }


def llama_metadata() -> dict[str, Value]:
    """The keys of a tiny, sound Llama model."""
    return {
        "general.architecture": text("llama"),
        "general.name": text("tiny"),
        "general.file_type": u32(0),
        "llama.block_count": u32(2),
        "llama.context_length": u32(128),
        "llama.embedding_length": u32(64),
        "llama.feed_forward_length": u32(96),
        "llama.attention.head_count": u32(4),
        "llama.attention.head_count_kv": u32(2),
        "llama.attention.layer_norm_rms_epsilon": f32(1e-5),
        **tokenizer(),
    }


def llama_tensors() -> list[Tensor]:
    """Some tensors of that model: F32, F16, Q8_0."""
    return [
        Tensor("token_embd.weight", (64, 4), 0),
        Tensor("output_norm.weight", (64,), 0),
        Tensor("blk.0.attn_q.weight", (64, 64), 8),
        Tensor("blk.0.attn_k.weight", (64, 32), 1),
    ]


def all_llama_tensors(vocabulary: int = 4, width: int = 64) -> list[Tensor]:
    """All tensors of that model. vocabulary: its tokens; width: of its hidden state."""
    tensors = [
        Tensor("token_embd.weight", (width, vocabulary), 0),
        Tensor("output_norm.weight", (width,), 0),
    ]
    for block in ("blk.0.", "blk.1."):
        tensors += [
            Tensor(block + "attn_q.weight", (width, width), 8),
            Tensor(block + "attn_k.weight", (width, width // 2), 1),
            Tensor(block + "attn_v.weight", (width, width // 2), 1),
            Tensor(block + "attn_output.weight", (width, width), 8),
            Tensor(block + "attn_norm.weight", (width,), 0),
            Tensor(block + "ffn_norm.weight", (width,), 0),
            Tensor(block + "ffn_gate.weight", (width, 96), 8),
            Tensor(block + "ffn_up.weight", (width, 96), 8),
            Tensor(block + "ffn_down.weight", (96, width), 8),
        ]
    return tensors


def llama_file() -> bytes:
    """A sound file of about 90 KB; the weights are zeros."""
    return gguf_file(llama_metadata(), all_llama_tensors())


def echo_file() -> bytes:
    """The smallest file that the echo backend takes."""
    metadata = {
        "general.architecture": text("hearth-echo"),
        "hearth-echo.context_length": u32(256),
    }
    return gguf_file(metadata)


def projector_metadata() -> dict[str, Value]:
    """The keys of a tiny projector for images."""
    numbers_of = {
        "image_size": 32,
        "patch_size": 8,
        "embedding_length": 64,
        "feed_forward_length": 128,
        "block_count": 1,
        "projection_dim": 64,
        "attention.head_count": 2,
    }
    return {
        "general.architecture": text("clip"),
        "general.type": text("mmproj"),
        "clip.projector_type": text("pixtral"),
        "clip.has_vision_encoder": Value(types.BOOL, True),
        **{f"clip.vision.{name}": u32(value) for name, value in numbers_of.items()},
        "clip.vision.attention.layer_norm_epsilon": f32(1e-5),
        "clip.vision.image_mean": numbers(types.FLOAT32, [0.5, 0.5, 0.5]),
        "clip.vision.image_std": numbers(types.FLOAT32, [0.5, 0.5, 0.5]),
    }


def projector_file(width: int = 64, kind: str = "mmproj", salt: str = "") -> bytes:
    """A file that says that it is a projector for images and has a tensor; it computes nothing.
    width: of its embeddings."""
    metadata = projector_metadata() | {
        "general.type": text(kind),
        "general.name": text(f"projector{salt}"),
    }
    return gguf_file(metadata, [Tensor("mm.2.weight", (64, width))])


def gguf_file(
    metadata: Mapping[str, Value],
    tensors: Sequence[Tensor] = (),
    version: int = 3,
    alignment: int = _ALIGNMENT,
    data_size: int | None = None,
) -> bytes:
    """A file with these keys and tensors; data_size: of the weights, None for what they need."""
    body = b"".join(string(key) + encode(value) for key, value in metadata.items())
    place, table = 0, b""
    for tensor in tensors:
        offset = place if tensor.offset is None else tensor.offset
        table += string(tensor.name) + struct.pack("<I", len(tensor.dimensions))
        table += struct.pack(f"<{len(tensor.dimensions)}Q", *tensor.dimensions)
        table += struct.pack("<IQ", tensor.type, offset)
        place = max(place, _padded(offset + _tensor_size(tensor), alignment))
    head = header_bytes(len(tensors), len(metadata), version) + body + table
    weights = bytes(place if data_size is None else data_size)
    return head + bytes(_padded(len(head), alignment) - len(head)) + weights


def header_bytes(tensor_count: int, key_count: int, version: int = 3) -> bytes:
    """The first 24 bytes of a file."""
    return b"GGUF" + struct.pack("<IQQ", version, tensor_count, key_count)


def string(value: str | bytes) -> bytes:
    """A string with its length before it."""
    content = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(content)) + content


def encode(value: Value) -> bytes:
    """A value with its type before it."""
    return struct.pack("<I", value.kind) + _body(value)


def _body(value: Value) -> bytes:
    if value.kind == types.STRING:
        return string(value.value)
    if value.element is None:
        return struct.pack("<" + types.SCALARS[value.kind][0], value.value)
    head = struct.pack("<IQ", value.element, len(value.value))
    if value.element == types.STRING:
        return head + b"".join(string(item) for item in value.value)
    code = types.SCALARS[value.element][0]
    return head + struct.pack(f"<{len(value.value)}{code}", *value.value)


def _tensor_size(tensor: Tensor) -> int:
    kind = types.TENSOR_TYPES.get(tensor.type)
    elements = 1
    for dimension in tensor.dimensions:
        elements *= dimension
    return 0 if kind is None else elements // kind.block_size * kind.block_bytes


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
