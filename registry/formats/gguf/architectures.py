"""Which tensors the models of common architectures have, and of which shapes.

As llama.cpp's loader demands them (src/models/*.cpp, load_arch_tensors), which ends the process on
some that it does not expect. Of other architectures, only what holds for all is checked: the types
of tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from registry.errors import InvalidGguf
from registry.formats.gguf.header import GgufHeader, TensorInfo
from registry.formats.gguf.values import LazyArray

# A tensor's shape in sizes of the model, the fastest dimension first: see _sizes().
Shapes = Mapping[str, str]

# What no operation takes as weights.
_NO_WEIGHT: Final = frozenset({"Q8_1", "Q8_K", "I8", "I16", "I64", "F64"})
_NORM: Final = re.compile(r"norm(_\d)?\.(weight|bias)$")
# Factors of a tensor that is there, one for each expert of it: of any linear map.
_SCALES: Final = (".scale", ".input_scale")


@dataclass(frozen=True, slots=True)
class Architecture:
    """outer: tensors of the model; layer: of each block, experts_layer: of a mixture of experts;
    a name with "?" may be missing. q: the size of all queries. rope_is_head: all of a head is
    rotated; None: nothing is. epsilon: the key that says it. experts: whether it is a mixture;
    None: it may be."""

    layer: Shapes
    outer: Shapes
    q: str = "heads"
    rope_is_head: bool | None = True
    epsilon: str = "attention.layer_norm_rms_epsilon"
    required: tuple[str, ...] = ("feed_forward_length",)
    experts: bool | None = False
    experts_layer: Shapes = field(default_factory=dict)


_OUTER: Final = {
    "token_embd.weight": "embd vocab",
    "output_norm.weight": "embd",
    "output.weight?": "embd vocab",
}
_GATED: Final = {
    "ffn_gate.weight": "embd ff",
    "ffn_up.weight": "embd ff",
    "ffn_down.weight": "ff embd",
}
_NORMED: Final = {
    "attn_norm.weight": "embd",
    "attn_output.weight": "heads embd",
    "ffn_norm.weight": "embd",
}
_PLAIN: Final = {**_NORMED, **_GATED}
_WIDE: Final = {**_PLAIN, "attn_output.weight": "embd embd"}
_HEAD_NORMS: Final = {"attn_q_norm.weight": "key", "attn_k_norm.weight": "key"}
_POST_NORMS: Final = {"post_attention_norm.weight": "embd", "post_ffw_norm.weight": "embd"}
_BIASES: Final = {
    "attn_output.bias?": "embd",
    "ffn_gate.bias?": "ff",
    "ffn_up.bias?": "ff",
    "ffn_down.bias?": "embd",
}
_MIXTURE: Final = {**_NORMED, "ffn_gate_inp.weight": "embd experts"}
_ROPE_FACTORS: Final = {
    "rope_freqs.weight?": "half_rope",
    "rope_factors_long.weight?": "half_rope",
    "rope_factors_short.weight?": "half_rope",
}
_BERT_NORMS: Final = {
    f"{name}.{part}": "embd"
    for name in ("attn_output_norm", "layer_output_norm")
    for part in ("weight", "bias")
}

_LLAMA: Final = Architecture(
    {**_PLAIN, **_BIASES},
    {**_OUTER, **_ROPE_FACTORS},
    experts=None,
    experts_layer={
        **_MIXTURE,
        "attn_output.bias?": "embd",
        "ffn_gate_exps.weight?": "embd ff experts",
        "ffn_up_exps.weight": "embd ff experts",
        "ffn_down_exps.weight": "ff embd experts",
    },
)
_GEMMA: Final = Architecture(
    {**_PLAIN, **_HEAD_NORMS, **_POST_NORMS},
    {
        **_OUTER,
        "dense_2.weight?": "embd dense_2",
        "dense_3.weight?": "dense_3 embd",
    },
    rope_is_head=False,
)
_TIED: Final = {"token_embd.weight": "embd vocab", "output_norm.weight": "embd"}

ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "llama": _LLAMA,
    "qwen2": Architecture(_WIDE, {**_OUTER, "output.bias?": "vocab"}, q="embd"),
    "qwen2vl": Architecture(
        _WIDE,
        {**_OUTER, "output.bias?": "vocab"},
        q="embd",
        rope_is_head=False,
        required=("feed_forward_length", "rope.dimension_sections"),
    ),
    "qwen3": Architecture(
        {**_PLAIN, **_HEAD_NORMS}, {**_OUTER, "cls.output.weight?": "embd labels"}
    ),
    "qwen3moe": Architecture(
        {},
        _OUTER,
        required=("expert_count", "expert_used_count"),
        experts=True,
        experts_layer={
            **_MIXTURE,
            **_HEAD_NORMS,
            "ffn_gate_exps.weight": "embd expert_ff experts",
            "ffn_up_exps.weight": "embd expert_ff experts",
            "ffn_down_exps.weight": "expert_ff embd experts",
        },
    ),
    "gemma": Architecture(_PLAIN, _TIED, rope_is_head=False),
    "gemma2": Architecture({**_PLAIN, **_POST_NORMS}, _TIED, rope_is_head=False),
    "gemma3": _GEMMA,
    "gemma-embedding": _GEMMA,
    "phi3": Architecture(
        {
            "attn_norm.weight": "embd",
            "attn_output.weight": "embd embd",
            "ffn_norm.weight": "embd",
            "ffn_up.weight": "embd double_ff",
            "ffn_down.weight": "ff embd",
        },
        {**_OUTER, **{key: shape for key, shape in _ROPE_FACTORS.items() if "factors" in key}},
        q="embd",
        rope_is_head=False,
    ),
    "smollm3": Architecture(_PLAIN, _OUTER),
    "olmo2": Architecture(
        {
            "attn_output.weight": "embd embd",
            "attn_q_norm.weight": "embd",
            "attn_k_norm.weight": "keys",
            **_POST_NORMS,
            **_GATED,
        },
        {**_TIED, "output.weight": "embd vocab"},
        q="embd",
    ),
    "bert": Architecture(
        {
            "attn_output.weight": "embd embd",
            "ffn_up.weight": "embd ff",
            "ffn_down.weight": "ff embd",
            **_BIASES,
            **_BERT_NORMS,
        },
        {
            "token_embd.weight": "embd vocab",
            "token_types.weight?": "embd token_types",
            "position_embd.weight": "embd context",
            "token_embd_norm.weight": "embd",
            "token_embd_norm.bias": "embd",
            "cls.weight?": "embd embd",
            "cls.bias?": "embd",
            "cls.output.weight?": "embd labels",
            "cls.output.bias?": "labels",
        },
        q="embd",
        rope_is_head=None,
        epsilon="attention.layer_norm_epsilon",
    ),
}


def check_model(header: GgufHeader) -> None:
    """Refuse a whole model's file that llama.cpp cannot load: a key or a tensor missing, a tensor
    too many, of another shape or of a type that no operation takes. Raises InvalidGguf, naming the
    key or the tensor."""
    if header.keeps_checkpoint or header.is_speech:
        return  # its tensors have other names; the backend that knows them compares them
    if header.tensors and "tokenizer.ggml.model" not in header.metadata:
        raise InvalidGguf("tokenizer.ggml.model is missing")
    architecture = ARCHITECTURES.get(header.architecture)
    for tensor in header.tensors:
        check_weight_type(tensor, indices=architecture is None)
    if architecture is not None:
        _Check(header, architecture).run()


def check_weight_type(tensor: TensorInfo, *, indices: bool = False) -> None:
    """Refuse a tensor of a type that no operation takes where it stands. indices: it may be a table
    of whole numbers. Raises InvalidGguf."""
    vector = len(tensor.dimensions) == 1 and tensor.name.endswith((".bias", *_SCALES))
    if vector or _NORM.search(tensor.name):
        if tensor.type != "F32":
            raise InvalidGguf(f"tensor {tensor.name} is of type {tensor.type}, expected F32")
    elif tensor.type in _NO_WEIGHT or (tensor.type == "I32" and not indices):
        raise InvalidGguf(
            f"tensor {tensor.name} is of type {tensor.type}, which cannot be computed with"
        )


def check_shape(tensor: TensorInfo, shape: list[int]) -> None:
    """Refuse a tensor of another shape, the fastest dimension first, and a vector that is not F32.
    Raises InvalidGguf."""
    found, vector = list(tensor.dimensions), len(shape) == 1
    for dimensions in (found, shape):
        while len(dimensions) > 1 and dimensions[-1] == 1:
            dimensions.pop()
    if found != shape:
        raise InvalidGguf(
            f"tensor {tensor.name} has the shape {list(tensor.dimensions)}, expected {shape}"
        )
    if vector and tensor.type != "F32":
        raise InvalidGguf(f"tensor {tensor.name} is of type {tensor.type}, expected F32")


class _Check:
    """A file against its architecture."""

    def __init__(self, header: GgufHeader, architecture: Architecture) -> None:
        self._header = header
        self._architecture = architecture
        self._tensors = {tensor.name: tensor for tensor in header.tensors}

    def run(self) -> None:
        self._check_keys()
        sizes = self._sizes()
        expected = set()
        for name, shape in self._expected():
            tensor = self._tensors.get(name.removesuffix("?"))
            if tensor is None:
                if not name.endswith("?"):
                    raise InvalidGguf(f"the tensor {name} is missing")
                continue
            expected.add(tensor.name)
            check_shape(tensor, [sizes[size] for size in shape.split()])
        for name in self._tensors:
            if name not in expected:
                self._check_extra(name, expected)

    def _check_keys(self) -> None:
        header, architecture = self._header, self._architecture
        for key in (architecture.epsilon, *architecture.required):
            if header.architecture_value(key) is None:
                raise InvalidGguf(f"{header.architecture}.{key} is missing")
        if header.vocabulary_size is None or "tokenizer.ggml.tokens" not in header.metadata:
            raise InvalidGguf("tokenizer.ggml.tokens is missing")
        for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
            numbers = self._numbers(key)
            if len(set(numbers)) > 1 or 0 in numbers:
                self._refuse(key, "the same number from 1 on for all blocks")
        key_length, rope = self._key_length, self._rope
        if header.value_length != key_length:
            self._refuse("attention.value_length", f"{key_length} as the key length")
        for key in ("attention.key_length_swa", "attention.value_length_swa"):
            if header.architecture_value(key) not in (None, key_length):
                self._refuse(key, f"{key_length} as the key length")
        smallest = key_length if architecture.rope_is_head else 2
        rotates = architecture.rope_is_head is not None
        if rotates and (not smallest <= rope <= key_length or rope % 2):
            self._refuse("rope.dimension_count", f"an even number from {smallest} to {key_length}")
        if architecture.experts is not None and bool(header.expert_count) != architecture.experts:
            expected = "1 or more" if architecture.experts else "none"
            self._refuse("expert_count", f"{expected} for the architecture {header.architecture}")

    @property
    def _key_length(self) -> int:
        return self._header.key_length or 0

    @property
    def _rope(self) -> int:
        value = self._header.architecture_value("rope.dimension_count")
        return value if isinstance(value, int) else self._key_length

    def _numbers(self, key: str) -> tuple[int, ...]:
        value = self._header.architecture_value(key)
        if isinstance(value, LazyArray):
            value = tuple(value.load())
        if isinstance(value, tuple):
            return value or (0,)
        return () if value is None else (value,)

    def _number(self, key: str) -> int:
        return next(iter(self._numbers(key)), 0)

    def _sizes(self) -> dict[str, int]:
        header, ff = self._header, self._number("feed_forward_length")
        heads, embd = self._number("attention.head_count"), header.embedding_length or 0
        heads_kv = self._number("attention.head_count_kv") or heads
        labels = header.architecture_value("classifier.output_labels")
        keys = heads_kv * self._key_length
        experts, expert_ff = header.expert_count or 0, self._number("expert_feed_forward_length")
        q = embd if self._architecture.q == "embd" else heads * self._key_length
        return {
            "embd": embd,
            "vocab": header.vocabulary_size or 0,
            "heads": heads * self._key_length,
            "q": q,
            "keys": keys,
            "qkv": q + 2 * keys,
            "key": self._key_length,
            "half_rope": self._rope // 2,
            "ff": ff,
            "double_ff": 2 * ff,
            "experts": experts,
            "expert_ff": expert_ff or ff // max(self._number("expert_used_count"), 1),
            "context": header.context_length or 0,
            "labels": len(labels) if isinstance(labels, (tuple, LazyArray)) else 1,
            "token_types": int(header.metadata.get("tokenizer.ggml.token_type_count") or 0),
            "dense_2": self._number("dense_2_feat_out"),
            "dense_3": self._number("dense_3_feat_in"),
        }

    def _expected(self) -> Iterator[tuple[str, str]]:
        yield from self._architecture.outer.items()
        mixture = bool(self._header.expert_count)
        layer = self._architecture.experts_layer if mixture else self._architecture.layer
        blocks = (self._header.block_count or 0) - self._number("nextn_predict_layers")
        for block in range(blocks):
            prefix = f"blk.{block}."
            for name, shape in (*layer.items(), *self._attention(prefix)):
                yield prefix + name, shape

    def _attention(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Queries, keys and values: in one tensor or in three."""
        if prefix + "attn_qkv.weight" in self._tensors:
            yield from (("attn_qkv.weight", "embd qkv"), ("attn_qkv.bias?", "qkv"))
            if prefix + "attn_qkv.bias" in self._tensors:
                return
        else:
            for part, size in (("q", "q"), ("k", "keys"), ("v", "keys")):
                yield f"attn_{part}.weight", f"embd {size}"
        for part, size in (("q", "q"), ("k", "keys"), ("v", "keys")):
            yield f"attn_{part}.bias?", size

    def _check_extra(self, name: str, expected: set[str]) -> None:
        stem = next((name.removesuffix(end) for end in _SCALES if name.endswith(end)), None)
        if stem is not None and f"{stem}.weight" in expected:
            experts = self._header.expert_count or 1
            wide = stem.endswith("_exps") or ".weight" in stem
            check_shape(self._tensors[name], [experts if wide else 1])
            return
        raise InvalidGguf(
            f"the architecture {self._header.architecture} has no tensor {name} for these keys"
        )

    def _refuse(self, key: str, expected: str) -> None:
        header = self._header
        value = header.architecture_value(key)
        raise InvalidGguf(f"{header.architecture}.{key} is {value}, expected {expected}")
