"""Mutations of GGUF headers that know what a header is made of: keys, values, types, arrays,
tensors, shapes, offsets, counts. Seeded: number and seed give the same file again."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from registry.formats.gguf import types
from registry.formats.gguf.header_source import opened
from registry.formats.gguf.reader import read_counts, read_entries, read_header
from tests.gguf_files import Tensor, Value, gguf_file

_MAX_DATA_BYTES = 1 << 28  # of a file, whatever its tensors say
NAN, INFINITY = float("nan"), float("inf")
_UINTS = (0, 1, 2, 3, 5, 7, 8, 63, 64, 65, 255, 512, 513, 2**20, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-38, -1e-5, 1e-5, 3e38, 1e9, NAN, INFINITY, -INFINITY)
_TEXTS = (
    *(b"", b"x", b"llama", b"gpt2", b"bert", b"t5", b"rwkv", b"plamo2", b"none", b"no_vocab"),
    *(b"test", b"gemma4", b"hybriddna", b"whitespace", b"default", b"qwen2", b"linear", b"yarn"),
    *(b"longrope", b"\xff\xfe", b"a\0b", b"phi-3", b"mamba", b"clip", b"adapter", b"lora"),
    *(b"mmproj", b"model", b"A" * 5000, b"{{ 1 / 0 }}", b"gelu", b"mlp", b"idefics3", b"gemma3"),
)
# Keys that a loader reads where they are there; <a> stands for the architecture.
_OPTIONAL_KEYS = (
    *("<a>.expert_count", "<a>.expert_used_count", "<a>.attention.key_length", "<a>.vocab_size"),
    *("<a>.attention.value_length", "<a>.attention.sliding_window", "<a>.rope.scaling.type"),
    *("<a>.rope.scaling.factor", "<a>.rope.freq_base", "<a>.attention.causal", "<a>.pooling_type"),
    *("<a>.nextn_predict_layers", "<a>.rope.dimension_count", "<a>.rope.dimension_sections"),
    *("<a>.expert_group_count", "<a>.expert_group_used_count", "<a>.expert_weights_scale"),
    *("<a>.attention.max_alibi_bias", "<a>.attention.clamp_kqv", "<a>.logit_scale"),
    *("<a>.expert_shared_feed_forward_length", "<a>.attention.scale", "<a>.embedding_scale"),
    *("<a>.attention.layer_norm_epsilon", "<a>.attention.layer_norm_rms_epsilon"),
    *("<a>.rope.scaling.original_context_length", "<a>.attention.sliding_window_pattern"),
    *("<a>.final_logit_softcapping", "<a>.attention.key_length_swa", "<a>.attention.head_count"),
    *("<a>.attention.head_count_kv", "<a>.feed_forward_length", "<a>.classifier.output_labels"),
    *("<a>.embedding_length_out", "<a>.leading_dense_block_count", "<a>.residual_scale"),
    *("tokenizer.ggml.pre", "tokenizer.ggml.model", "tokenizer.ggml.token_type_count"),
    *("tokenizer.ggml.merges", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"),
    *("tokenizer.ggml.precompiled_charsmap", "tokenizer.ggml.add_bos_token"),
    *("tokenizer.ggml.unknown_token_id", "tokenizer.ggml.seperator_token_id"),
    *("tokenizer.ggml.mask_token_id", "tokenizer.ggml.fim_pre_token_id", "general.alignment"),
    *("tokenizer.ggml.add_space_prefix", "tokenizer.ggml.remove_extra_whitespaces"),
    *("general.type", "general.file_type", "general.name", "split.count", "split.no"),
    *("tokenizer.chat_template", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.suffix_token_id"),
    *("general.quantization_version", "adapter.type", "adapter.lora.alpha"),
)  # fmt: skip


@dataclass(slots=True)
class Gguf:
    """A file's header, to be changed. entries: also the same key twice. weights: the bytes of the
    data section, None for zeros."""

    entries: list[tuple[str, Value]]
    tensors: list[Tensor]
    weights: bytes | None = None
    version: int = 3

    @property
    def architecture(self) -> str:
        found = dict(self.entries).get("general.architecture")
        return found.value.decode("utf-8", "replace") if found and found.kind == 8 else "llama"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed file: its beginning, and its size in bytes; the rest is zeros. what: the changes,
    in words."""

    head: bytes
    size: int
    what: str

    def write(self, path: Path) -> None:
        """Write it, its zeros as a hole."""
        with open(path, "wb") as file:
            file.write(self.head[: self.size])
            file.truncate(self.size)


def read_gguf(path: Path, *, tokens: int | None = None, weights: bool = False) -> Gguf:
    """The header of a sound file. tokens: its vocabulary is cut to so many, with the tensors'
    rows; weights: with the data section."""
    with opened(path) as source:
        _, _, count = read_counts(source)
        raw = {key: value for key, value, _ in read_entries(source, count)}
    entries = []
    for key, item in raw.items():
        if item.kind == types.ARRAY:
            entries.append((key, Value(item.kind, list(item.value.items), item.value.kind)))
        else:
            entries.append((key, Value(item.kind, item.value)))
    header = read_header(path)
    tensors = [
        Tensor(tensor.name, tensor.dimensions, types.TENSOR_NUMBERS[tensor.type])
        for tensor in header.tensors
    ]
    made = Gguf(entries, tensors)
    if weights:
        with open(path, "rb") as file:
            file.seek(header.data_offset)
            made.weights = file.read()
    return made if tokens is None else _cut(made, tokens)


def _cut(made: Gguf, tokens: int) -> Gguf:
    arrays = dict(made.entries)
    before = len(arrays["tokenizer.ggml.tokens"].value)
    kept = set(arrays["tokenizer.ggml.tokens"].value[:tokens])
    entries = []
    for key, value in made.entries:
        if key == "tokenizer.ggml.merges":
            merges = [m for m in value.value if bytes(m).replace(b" ", b"", 1) in kept]
            value = dataclasses.replace(value, value=merges)
        elif value.element is not None and len(value.value) == before:
            value = dataclasses.replace(value, value=value.value[:tokens])
        elif key.endswith(".vocab_size"):
            value = dataclasses.replace(value, value=tokens)
        entries.append((key, value))
    tensors = [
        dataclasses.replace(t, dimensions=tuple(tokens if d == before else d for d in t.dimensions))
        for t in made.tensors
    ]
    return Gguf(entries, tensors)


def write_gguf(made: Gguf) -> tuple[bytes, int]:
    """Its header with the weights that are no zeros, and its size in bytes."""
    entries: Any = _Entries(made.entries)
    head, data = gguf_file(entries, made.tensors, made.version, data_size=0), _data_size(made)
    size = len(head) + min(data, _MAX_DATA_BYTES)
    return (head + made.weights)[:size] if made.weights else head, size


class _Entries:
    """What gguf_file() wants of a mapping, with keys that may occur twice."""

    def __init__(self, entries: list[tuple[str, Value]]) -> None:
        self._entries = entries

    def items(self) -> list[tuple[str, Value]]:
        return self._entries

    def __len__(self) -> int:
        return len(self._entries)


def _data_size(made: Gguf) -> int:
    place = 0
    for tensor in made.tensors:
        kind = types.TENSOR_TYPES.get(tensor.type)
        size = prod(tensor.dimensions) // kind.block_size * kind.block_bytes if kind else 0
        offset = place if tensor.offset is None else tensor.offset
        place = max(place, -(-(offset + size) // 32) * 32)
    return place


def mutate(sound: Gguf, seed: int, number: int) -> Mutant:
    """Mutant `number` of a sound file: one change, at times two or three."""
    rng = random.Random(f"{seed}/{number}")
    made = Gguf(list(sound.entries), list(sound.tensors), sound.weights, sound.version)
    what = []
    for _ in range(1 if rng.random() < 0.8 else rng.choice((2, 3))):
        mutation = rng.choice(_WEIGHTED)
        what.append(mutation(made, rng) or "nothing")
    made.tensors = _placed(made.tensors)
    mutant = Mutant(*write_gguf(made), "; ".join(what))
    return _damage(mutant, rng) if rng.random() < 0.06 else mutant


def _placed(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors with their offsets, in numbers that fit into a file."""
    place, placed = 0, []
    for tensor in tensors:
        offset = (place if tensor.offset is None else tensor.offset) % 2**64
        dimensions = tuple(size % 2**64 for size in tensor.dimensions)
        placed.append(dataclasses.replace(tensor, dimensions=dimensions, offset=offset))
        place = max(place, _data_size(Gguf([], placed[-1:])))
    return placed


def _damage(mutant: Mutant, rng: random.Random) -> Mutant:
    """The end cut off, bytes of the header changed, the counts changed."""
    changed, kind = bytearray(mutant.head), rng.randrange(3)
    if kind == 0:
        size = rng.choice((rng.randrange(mutant.size), mutant.size - rng.randrange(1, 64)))
        return Mutant(mutant.head, max(size, 0), f"{mutant.what}; cut to {size} bytes")
    if kind == 1:
        places = [rng.choice((4, 8, 16))]
        changed[places[0]] = (changed[places[0]] + rng.choice((-1, 1, 7))) % 256
    else:
        limit = min(len(changed), 1 << 16)
        places = [rng.randrange(limit) for _ in range(rng.randrange(1, 4))]
        for at in places:
            changed[at] ^= 1 << rng.randrange(8)
    return Mutant(bytes(changed), mutant.size, f"{mutant.what}; bytes at {places}")


def _pick(made: Gguf, rng: random.Random, test: Callable[[Value], bool]) -> int | None:
    found = [i for i, (_, value) in enumerate(made.entries) if test(value)]
    return rng.choice(found) if found else None


def _set(made: Gguf, at: int, value: Value) -> None:
    made.entries[at] = made.entries[at][0], value


def _is_number(value: Value) -> bool:
    return value.element is None and value.kind != types.STRING


def _number(kind: int, rng: random.Random, old: Any = None) -> Any:
    if kind in (types.FLOAT32, types.FLOAT64):
        near = [old * 2, -old] if isinstance(old, float) else []
        return rng.choice((*_FLOATS, *near))
    if kind == types.BOOL:
        return rng.choice((0, 1, 2))
    near = [old + 1, old - 1, old * 2, old // 2, old * 3] if isinstance(old, int) else []
    value = int(rng.choice((*_UINTS, *near)))
    bits = types.SCALARS[kind][1] * 8
    signed = kind in (types.INT8, types.INT16, types.INT32, types.INT64)
    if signed:
        value = rng.choice((value, -1, -value))
        return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    return value % (1 << bits)


def _change_number(made: Gguf, rng: random.Random) -> str:
    at = _pick(made, rng, _is_number)
    if at is None:
        return ""
    key, old = made.entries[at]
    _set(made, at, Value(old.kind, _number(old.kind, rng, old.value)))
    return f"{key}: {old.value} -> {made.entries[at][1].value}"


def _change_type(made: Gguf, rng: random.Random) -> str:
    at = rng.randrange(len(made.entries)) if made.entries else None
    if at is None:
        return ""
    key, old = made.entries[at]
    kind = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12))
    if kind == types.STRING:
        _set(made, at, Value(kind, str(old.value)[:100].encode()))
    elif kind == types.ARRAY:
        inner = rng.choice((4, 5, 6))
        count = rng.choice((0, 1, 2, 6, 30, 64))
        value = old.value if _is_number(old) else 1
        fits = isinstance(value, int) and 0 <= value < 2**31
        _set(made, at, Value(kind, [value if fits else 1] * count, inner))
    else:
        value = old.value if _is_number(old) else 1
        if kind in (types.FLOAT32, types.FLOAT64):
            _set(made, at, Value(kind, float(value)))
        else:
            fits = isinstance(value, int) and 0 <= value < 128 and (kind != types.BOOL or value < 2)
            _set(made, at, Value(kind, value if fits else 1))
    return f"{key}: type {old.kind} -> {kind}"


def _remove_key(made: Gguf, rng: random.Random) -> str:
    if not made.entries:
        return ""
    key, _ = made.entries.pop(rng.randrange(len(made.entries)))
    return f"{key} removed"


def _repeat_key(made: Gguf, rng: random.Random) -> str:
    if not made.entries:
        return ""
    made.entries.append(rng.choice(made.entries))
    return f"{made.entries[-1][0]} twice"


def _rename_key(made: Gguf, rng: random.Random) -> str:
    if not made.entries:
        return ""
    at = rng.randrange(len(made.entries))
    key, value = made.entries[at]
    new = rng.choice((key + "x", key.upper(), key[1:], rng.choice(made.entries)[0], "x" * 300))
    made.entries[at] = new, value
    return f"{key} renamed {new[:40]}"


def _swap_values(made: Gguf, rng: random.Random) -> str:
    if len(made.entries) < 2:
        return ""
    a, b = rng.sample(range(len(made.entries)), 2)
    (key_a, value_a), (key_b, value_b) = made.entries[a], made.entries[b]
    made.entries[a], made.entries[b] = (key_a, value_b), (key_b, value_a)
    return f"{key_a} and {key_b} swapped"


def _add_key(made: Gguf, rng: random.Random) -> str:
    key = rng.choice(_OPTIONAL_KEYS).replace("<a>", made.architecture)
    kind = rng.choice((4, 4, 4, 4, 6, 6, 7, 8, 9, 5))
    if kind == types.STRING:
        value = Value(kind, rng.choice(_TEXTS))
    elif kind == types.ARRAY:
        inner = rng.choice((4, 5, 6, 8))
        count = rng.choice((0, 1, 3, 4, 6, 30))
        items = [rng.choice(_TEXTS) if inner == 8 else _number(inner, rng) for _ in range(count)]
        value = Value(kind, items, inner)
    elif kind == types.BOOL:
        value = Value(kind, rng.randrange(2))
    else:
        value = Value(kind, _number(kind, rng))
    made.entries = [entry for entry in made.entries if entry[0] != key]
    made.entries.append((key, value))
    return f"{key} = {str(value.value)[:40]} ({kind})"


def _change_text(made: Gguf, rng: random.Random) -> str:
    at = _pick(made, rng, lambda value: value.kind == types.STRING)
    if at is None:
        return ""
    key, old = made.entries[at]
    _set(made, at, Value(old.kind, rng.choice(_TEXTS)))
    return f"{key}: text {made.entries[at][1].value[:20]!r}"


def _change_tokenizer(made: Gguf, rng: random.Random) -> str:
    """Another kind of tokenizer, with the arrays that are there."""
    kinds = (b"bert", b"t5", b"rwkv", b"plamo2", b"none", b"no_vocab", b"gpt2", b"gemma4", b"llama")
    made.entries = [entry for entry in made.entries if entry[0] != "tokenizer.ggml.model"]
    made.entries.append(("tokenizer.ggml.model", Value(types.STRING, rng.choice(kinds))))
    return f"tokenizer.ggml.model: {made.entries[-1][1].value!r}"


def _change_array(made: Gguf, rng: random.Random) -> str:
    at = _pick(made, rng, lambda value: value.element is not None and len(value.value) > 0)
    if at is None:
        return ""
    key, old = made.entries[at]
    items, element = list(old.value), old.element
    assert element is not None
    kind = rng.randrange(7)
    place = rng.choice((0, 1, 2, len(items) - 1, rng.randrange(len(items)))) % len(items)
    if kind == 0:
        items = items[: rng.choice((0, 1, len(items) // 2, len(items) - 1))]
    elif kind == 1:
        items = items + [items[0]] * rng.choice((1, 5))
    elif kind == 2 and element == types.STRING:
        element, items = types.INT32, [1] * len(items)
    elif kind == 2:
        element, items = types.STRING, [b"a%d" % i for i in range(len(items))]
    elif kind == 3 and element != types.STRING:
        element = rng.choice((4, 5, 6))
        items = [0] * len(items)
    elif kind == 4:
        items[place] = items[rng.randrange(len(items))]
    elif element == types.STRING:
        texts = (b"", b" ", b"  ", b"\xff", b"<0x0A>", b"<0xZZ>", b"a" * 5000, b"a b c", b"\0")
        items[place] = rng.choice(texts)
    else:
        items[place] = _number(element, rng, items[place])
    _set(made, at, Value(old.kind, items, element))
    return f"{key}: array change {kind} at {place}"


def _tensor_at(made: Gguf, rng: random.Random) -> int | None:
    return rng.randrange(len(made.tensors)) if made.tensors else None


def _change_tensor_type(made: Gguf, rng: random.Random) -> str:
    at = _tensor_at(made, rng)
    if at is None:
        return ""
    old, kind = made.tensors[at], rng.choice((*types.TENSOR_TYPES, 4, 5, 31, 36, 42, 99))
    if rng.random() < 0.1:  # the type of all matrices, as another quantization would have it
        made.tensors = [
            dataclasses.replace(t, type=kind) if len(t.dimensions) > 1 else t for t in made.tensors
        ]
        return f"all matrices: type {kind}"
    made.tensors[at] = dataclasses.replace(old, type=kind)
    return f"{old.name}: type {old.type} -> {kind}"


def _change_shape(made: Gguf, rng: random.Random) -> str:
    at = _tensor_at(made, rng)
    if at is None:
        return ""
    old = made.tensors[at]
    dims = list(old.dimensions)
    place, kind = rng.randrange(len(dims)), rng.randrange(7)
    if kind == 0:
        dims.reverse()
    elif kind == 1:
        dims.append(rng.choice((1, 2, 3)))
    elif kind == 2 and len(dims) > 1:
        dims.pop(place)
    elif kind == 3:
        dims[place] = rng.choice((0, 1, 2**31, 2**40, 2**63 - 1, 2**64 - 1))
    elif kind == 4:
        dims = [prod(dims)]
    else:
        block = types.TENSOR_TYPES[old.type].block_size if old.type in types.TENSOR_TYPES else 1
        dims[place] = max(dims[place] + rng.choice((-block, block, dims[place], 1)), 0)
    made.tensors[at] = dataclasses.replace(old, dimensions=tuple(dims[:5]))
    return f"{old.name}: shape {old.dimensions} -> {tuple(dims)}"


def _change_tensor_name(made: Gguf, rng: random.Random) -> str:
    at = _tensor_at(made, rng)
    if at is None or len(made.tensors) < 2:
        return ""
    old, kind = made.tensors[at], rng.randrange(4)
    other = rng.choice([i for i in range(len(made.tensors)) if i != at])
    if kind == 0:
        new = made.tensors[other].name
        made.tensors[other] = dataclasses.replace(made.tensors[other], name=old.name)
    elif kind == 1:
        new = made.tensors[other].name
    else:
        named = (old.name + "x", "", "x" * 63, "x" * 64, old.name.replace("0", "9"), "a\0b")
        new = rng.choice(named)
    made.tensors[at] = dataclasses.replace(made.tensors[at], name=new)
    return f"{old.name}: named {new[:40]} ({kind})"


def _remove_tensor(made: Gguf, rng: random.Random) -> str:
    at = _tensor_at(made, rng)
    if at is None:
        return ""
    return f"{made.tensors.pop(at).name} removed"


def _add_tensor(made: Gguf, rng: random.Random) -> str:
    names = (
        *("rope_freqs.weight", "output.weight", "blk.0.attn_q.bias", "extra.weight", "cls.weight"),
        *("blk.0.ffn_gate_inp.weight", "blk.0.attn_qkv.weight", "blk.99.attn_q.weight"),
        *("blk.0.attn_q.scale", "blk.0.ffn_up.bias", "output.bias", "blk.0.attn_q_norm.weight"),
    )
    name, dims = rng.choice(names), rng.choice(((1,), (32,), (64,), (256,), (256, 32), (64, 64, 2)))
    place = rng.randrange(len(made.tensors) + 1)
    made.tensors.insert(place, Tensor(name, dims, rng.choice((0, 0, 1, 8, 24))))
    return f"{name} {dims} added"


def _change_offset(made: Gguf, rng: random.Random) -> str:
    """All offsets as they are but one."""
    at = _tensor_at(made, rng)
    if at is None:
        return ""
    laid = _placed(made.tensors)
    old = laid[at].offset or 0
    kind = rng.randrange(4)
    if kind == 0 and len(laid) > 1:
        other = rng.randrange(len(laid))
        new = laid[other].offset or 0
        laid[other] = dataclasses.replace(laid[other], offset=old)
    elif kind == 1:  # a gap: this one and all behind it
        for later in range(at, len(laid)):
            laid[later] = dataclasses.replace(laid[later], offset=(laid[later].offset or 0) + 64)
        made.tensors = laid
        return f"a gap of 64 before {laid[at].name}"
    else:
        new = rng.choice((old + 1, old + 32, max(old - 32, 0), 0, 2**40, 2**63, 2**64 - 32, 16))
    laid[at] = dataclasses.replace(laid[at], offset=new)
    made.tensors = laid
    return f"{laid[at].name}: offset {old} -> {new}"


def _poison_weights(made: Gguf, rng: random.Random) -> str:
    """Scales and weights that are NaN or infinite, in a tensor or in all."""
    if made.weights is None:
        return _change_tensor_type(made, rng)
    content = bytearray(made.weights)
    for _ in range(rng.choice((1, 20, 400))):
        at = rng.randrange(0, len(content) - 34) // 2 * 2
        content[at : at + 2] = rng.choice(
            (b"\0\x7c", b"\0\xfc", b"\0\x7e", b"\xff\xff", b"\x80\x7f")
        )
    made.weights = bytes(content)
    return "weights poisoned"


_MUTATIONS: dict[Callable[[Gguf, random.Random], str], int] = {
    _change_number: 6,
    _change_type: 3,
    _remove_key: 2,
    _repeat_key: 1,
    _rename_key: 1,
    _swap_values: 2,
    _add_key: 6,
    _change_text: 3,
    _change_tokenizer: 1,
    _change_array: 5,
    _change_tensor_type: 4,
    _change_shape: 3,
    _change_tensor_name: 3,
    _remove_tensor: 2,
    _add_tensor: 2,
    _change_offset: 3,
    _poison_weights: 1,
}
_WEIGHTED = [mutation for mutation, times in _MUTATIONS.items() for _ in range(times)]
