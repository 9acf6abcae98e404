"""Rules on the metadata: what llama.cpp takes for granted about an architecture's figures.

A zero where it divides, an array of the wrong length or a huge count ends its process instead
of failing the load, so these are refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from registry.errors import InvalidGguf, shown
from registry.formats.gguf.key_types import check_key_types
from registry.formats.gguf.types import ARRAY, INT32, STRING, UINT32, VALUE_NAMES
from registry.formats.gguf.values import RawValue

MAX_TEMPLATE_BYTES = 256 * 1024
MAX_BLOCKS = 512  # LLAMA_MAX_LAYERS of llama.cpp
MAX_EXPERTS = 512  # LLAMA_MAX_EXPERTS
MAX_WIDTH = 2**24

# Architectures without the attention figures of a transformer decoder.
_NO_DECODER: Final = frozenset(
    (
        *("hearth-echo", "clip", "mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"),
        *("t5", "t5encoder", "wavtokenizer-dec", "adapter", "whisper", "piper"),
    )
)
_REQUIRED: Final = ("block_count", "context_length", "embedding_length", "attention.head_count")

# Scalars that must not be zero where they stand, with the most that is believable.
_POSITIVE: Final = {
    "block_count": MAX_BLOCKS,
    "context_length": 2**31 - 1,
    "embedding_length": MAX_WIDTH,
    "attention.key_length": MAX_WIDTH,
    "attention.value_length": MAX_WIDTH,
    "vocab_size": 2**31 - 1,
}
_BOUNDED: Final = {
    "expert_count": MAX_EXPERTS,
    "expert_group_count": MAX_EXPERTS,
    "expert_group_used_count": MAX_EXPERTS,
    "dense_2_feat_out": MAX_WIDTH,
    "dense_3_feat_in": MAX_WIDTH,
    "rope.dimension_count_swa": MAX_WIDTH,
    "attention.key_length_swa": MAX_WIDTH,
    "attention.value_length_swa": MAX_WIDTH,
    "embedding_length_out": MAX_WIDTH,
    "rope.dimension_count": MAX_WIDTH,
    "leading_dense_block_count": MAX_BLOCKS,
    "nextn_predict_layers": MAX_BLOCKS,
    "attention.sliding_window": 2**31 - 1,
    "ssm.conv_kernel": MAX_WIDTH,
    "ssm.inner_size": MAX_WIDTH,
    "ssm.state_size": MAX_WIDTH,
    "ssm.time_step_rank": MAX_WIDTH,
    "ssm.group_count": MAX_WIDTH,
}
_PER_BLOCK: Final = {
    "attention.head_count": 2**16,
    "attention.head_count_kv": 2**16,
    "feed_forward_length": MAX_WIDTH,
    "expert_feed_forward_length": MAX_WIDTH,
    "expert_used_count": MAX_EXPERTS,
}


def check_metadata(raw: Mapping[str, RawValue]) -> None:
    """Check the architecture's figures and the general keys. Raises InvalidGguf."""
    architecture = _architecture(raw)
    _check_template(raw)
    check_key_types(architecture, raw)
    rules = _Rules(architecture, raw)
    if architecture not in _NO_DECODER and _is_model(raw):
        for key in _REQUIRED:
            rules.require(key)
    for key, maximum in _POSITIVE.items():
        rules.check_scalar(key, 1, maximum)
    for key, maximum in _BOUNDED.items():
        rules.check_scalar(key, 0, maximum)
    for key, maximum in _PER_BLOCK.items():
        rules.check_per_block(key, maximum)
    rules.check_heads()
    rules.check_experts()
    rules.check_blocks()


def _architecture(raw: Mapping[str, RawValue]) -> str:
    value = raw.get("general.architecture")
    if value is None:
        raise InvalidGguf("general.architecture is missing")
    text = value.value.decode("utf-8", "replace") if value.kind == STRING else ""
    if not 0 < len(text) <= 64 or not all(c.isalnum() or c in "-_." for c in text):
        raise InvalidGguf(
            f"general.architecture is {shown(str(value.value))}, expected a name such as 'llama'"
        )
    return str(text)


def _is_model(raw: Mapping[str, RawValue]) -> bool:
    """False for projectors and adapters, which say so in general.type."""
    kind = raw.get("general.type")
    return kind is None or kind.value not in (b"mmproj", b"adapter", b"imatrix")


def _check_template(raw: Mapping[str, RawValue]) -> None:
    for key, item in raw.items():
        if not key.startswith("tokenizer.chat_template") or key == "tokenizer.chat_templates":
            continue
        if item.kind != STRING or len(item.value) > MAX_TEMPLATE_BYTES:
            raise InvalidGguf(f"{key}: expected text of at most {MAX_TEMPLATE_BYTES} bytes")


class _Rules:
    """The figures of one architecture."""

    def __init__(self, architecture: str, raw: Mapping[str, RawValue]) -> None:
        self._architecture = architecture
        self._raw = raw

    def require(self, key: str) -> None:
        full = f"{self._architecture}.{key}"
        if full not in self._raw:
            raise InvalidGguf(f"{full} is missing")

    def check_scalar(self, key: str, minimum: int, maximum: int) -> None:
        item = self._get(key)
        if item is None or (item.kind == ARRAY and minimum == 0):
            return
        if item.kind != UINT32 or not minimum <= item.value <= maximum:
            self._refuse(key, item, f"a uint32 from {minimum} to {maximum}")

    def check_per_block(self, key: str, maximum: int) -> None:
        """One number for all layers, or an array with one for each."""
        item, blocks = self._get(key), self._get("block_count")
        if item is None:
            return
        if item.kind != ARRAY:
            minimum = 1 if key == "attention.head_count" else 0
            if item.kind != UINT32 or not minimum <= item.value <= maximum:
                self._refuse(key, item, f"a uint32 from {minimum} to {maximum}")
            return
        numbers = item.value
        if numbers.kind not in (UINT32, INT32) or (
            blocks is not None and len(numbers.items) < blocks.value
        ):
            self._refuse(key, item, "an array of one uint32 for each block")
        if any(not 0 <= number <= maximum for number in numbers.items):
            self._refuse(key, item, f"numbers from 0 to {maximum}")

    def check_heads(self) -> None:
        """Heads divide by the heads of keys and values, the width by the heads."""
        heads, groups = (
            self._scalar("attention.head_count"),
            self._numbers("attention.head_count_kv"),
        )
        width = self._scalar("embedding_length")
        for group in groups:
            if heads is not None and group and heads % group:
                self._refuse_number("attention.head_count_kv", group, f"a divisor of {heads}")
        if heads is None or width is None or self._get("attention.key_length") is not None:
            return
        if width % heads:
            self._refuse_number("embedding_length", width, f"a multiple of the {heads} heads")

    def check_experts(self) -> None:
        """Of the experts that there are, some are used, and groups divide them."""
        count, used = (
            self._scalar("expert_count") or 0,
            max(self._numbers("expert_used_count"), default=0),
        )
        if used > count or (count and not used):
            self._refuse_number("expert_used_count", used, f"{min(count, 1)} to {count}")
        groups = self._scalar("expert_group_count") or 0
        if groups and (groups >= count or count % groups):
            self._refuse_number("expert_group_count", groups, f"a divisor of {count} experts")
        used_groups = self._scalar("expert_group_used_count") or 0
        if groups > 1 and not 0 < used_groups < groups:
            self._refuse_number("expert_group_used_count", used_groups, f"1 to {groups - 1}")

    def check_blocks(self) -> None:
        """Layers that predict further tokens are some of all, and not all."""
        blocks, ahead = self._scalar("block_count"), self._scalar("nextn_predict_layers") or 0
        if blocks is not None and ahead >= blocks:
            self._refuse_number("nextn_predict_layers", ahead, f"less than the {blocks} blocks")

    def _numbers(self, key: str) -> set[int]:
        item = self._get(key)
        if item is None:
            return set()
        return set(item.value.items) if item.kind == ARRAY else {item.value}

    def _get(self, key: str) -> RawValue | None:
        return self._raw.get(f"{self._architecture}.{key}")

    def _scalar(self, key: str) -> int | None:
        item = self._get(key)
        return None if item is None or item.kind != UINT32 else int(item.value)

    def _refuse(self, key: str, item: RawValue, expected: str) -> None:
        kind = VALUE_NAMES[item.kind]
        value: Any = f"{len(item.value.items)} elements" if item.kind == ARRAY else item.value
        self._refuse_number(key, f"{value} ({kind})", expected)

    def _refuse_number(self, key: str, value: Any, expected: str) -> None:
        full = f"{self._architecture}.{key}"
        raise InvalidGguf(f"{full} is {shown(str(value))}, expected {expected}")
