"""The type of each key that llama.cpp's loader reads: it refuses another, whichever key it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from registry.errors import InvalidGguf, shown
from registry.formats.gguf.types import (
    ARRAY,
    BOOL,
    FLOAT32,
    INT32,
    STRING,
    UINT16,
    UINT32,
    VALUE_NAMES,
)
from registry.formats.gguf.values import RawValue

# Of a projector.
_VISION_NUMBERS: Final = (
    *("image_size", "patch_size", "embedding_length", "feed_forward_length", "block_count"),
    *("projection_dim", "attention.head_count", "attention.head_count_kv", "attention.head_dim"),
    *("image_min_pixels", "image_max_pixels", "preproc_min_tiles", "preproc_max_tiles"),
    *("preproc_image_size", "projector.scale_factor", "projector.query_side"),
    *("projector.window_side", "spatial_merge_size", "n_wa_pattern", "window_size"),
)
_AUDIO_NUMBERS: Final = (
    *("num_mel_bins", "embedding_length", "feed_forward_length", "block_count", "projection_dim"),
    *("attention.head_count", "attention.head_count_kv", "attention.head_dim"),
    *("projector.stack_factor", "projector.window_size", "projector.downsample_rate"),
    *("projector.head_count", "chunk_size", "conv_kernel_size", "max_pos_emb", "window_size"),
    *("rvq.num_quantizers", "local_block_count", "local_group_size"),
)
_SCALARS: Final = {
    STRING: (
        *("general.architecture", "general.type", "general.name", "adapter.type"),
        *("tokenizer.ggml.model", "tokenizer.ggml.pre", "*.rope.scaling.type"),
        *("*.projector_type", "*.vision.projector_type", "*.vision.mm_patch_merge_type"),
        "*.audio.projector_type",
    ),
    BOOL: (
        *("*.has_vision_encoder", "*.has_audio_encoder", "*.use_gelu", "*.use_silu"),
        "*.has_gen_audio_encoder",
        *("tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"),
        *("tokenizer.ggml.add_sep_token", "tokenizer.ggml.add_space_prefix"),
        *("tokenizer.ggml.remove_extra_whitespaces", "*.attention.causal"),
        *("tokenizer.ggml.normalizer.lowercase", "tokenizer.ggml.normalizer.strip_accents"),
        *("*.rope.scaling.finetuned", "*.use_parallel_residual", "*.expert_weights_norm"),
    ),
    UINT16: ("split.count",),
    UINT32: (
        *("general.file_type", "general.quantization_version", "*.vocab_size", "*.pooling_type"),
        *("tokenizer.ggml.token_type_count", "*.classifier.pooling_type"),
        *("*.context_length", "*.embedding_length", "*.embedding_length_out", "*.block_count"),
        *("*.expert_count", "*.expert_shared_count", "*.expert_group_count"),
        *("*.expert_group_used_count", "*.expert_shared_feed_forward_length"),
        *("*.expert_gating_func", "*.leading_dense_block_count", "*.nextn_predict_layers"),
        *("*.attention.key_length", "*.attention.value_length", "*.attention.key_length_swa"),
        *("*.attention.value_length_swa", "*.attention.sliding_window"),
        *("*.attention.temperature_length", "*.rope.dimension_count"),
        *("*.rope.dimension_count_swa", "*.rope.scaling.original_context_length"),
        *(f"*.vision.{name}" for name in _VISION_NUMBERS),
        *(f"*.audio.{name}" for name in _AUDIO_NUMBERS),
    ),
    FLOAT32: (
        *("*.attention.layer_norm_epsilon", "*.attention.layer_norm_rms_epsilon"),
        *("*.attention.group_norm_epsilon", "*.attention.max_alibi_bias", "*.attention.scale"),
        *("*.attention.clamp_kqv", "*.attention.output_scale", "*.attention.value_scale"),
        *("*.attention.temperature_scale", "*.rope.freq_base", "*.rope.freq_base_swa"),
        *("*.rope.scale_linear", "*.rope.scaling.factor", "*.rope.scaling.alpha"),
        *("*.rope.scaling.attn_factor", "*.rope.scaling.yarn_log_multiplier"),
        *("*.rope.scaling.yarn_ext_factor", "*.rope.scaling.yarn_attn_factor"),
        *("*.rope.scaling.yarn_beta_fast", "*.rope.scaling.yarn_beta_slow", "*.logit_scale"),
        *("*.residual_scale", "*.embedding_scale", "*.expert_weights_scale"),
        *("*.attn_logit_softcapping", "*.final_logit_softcapping", "*.router_logit_softcapping"),
        *("adapter.lora.alpha", "*.vision.attention.layer_norm_epsilon"),
        "*.audio.attention.layer_norm_epsilon",
    ),
}  # fmt: skip
_ARRAYS: Final = {
    STRING: ("tokenizer.ggml.tokens", "tokenizer.ggml.merges", "*.classifier.output_labels"),
    FLOAT32: ("tokenizer.ggml.scores", "*.vision.image_mean", "*.vision.image_std"),
    INT32: (
        *("tokenizer.ggml.token_type", "*.vision.feature_layer"),
        *("*.vision.image_grid_pinpoints", "*.vision.wa_layer_indexes"),
    ),
    UINT32: ("adapter.alora.invocation_tokens",),
}
_SCALAR_OF: Final = {key: kind for kind, keys in _SCALARS.items() for key in keys}
_ARRAY_OF: Final = {key: kind for kind, keys in _ARRAYS.items() for key in keys}
_ID_SUFFIX: Final = "_token_id"
# What divides or is taken a root of: smaller than it never is.
_MIN_FLOATS: Final = {
    "*.attention.layer_norm_epsilon": 0.0,
    "*.attention.layer_norm_rms_epsilon": 0.0,
    "*.attention.group_norm_epsilon": 0.0,
    "*.attention.max_alibi_bias": 0.0,
    "*.rope.freq_base": 1e-30,
    "*.rope.freq_base_swa": 1e-30,
    "*.rope.scaling.factor": 0.0,
    "*.rope.scale_linear": 0.0,
    "*.vision.attention.layer_norm_epsilon": 0.0,
    "*.audio.attention.layer_norm_epsilon": 0.0,
}
_ROPE_SCALINGS: Final = (b"none", b"linear", b"yarn", b"longrope")


def check_key_types(architecture: str, raw: Mapping[str, RawValue]) -> None:
    """Check the type of every key that is known here, and that numbers are finite. Raises
    InvalidGguf."""
    own = architecture + "."
    for full, item in raw.items():
        key = "*." + full.removeprefix(own) if full.startswith(own) else full
        scalar = _SCALAR_OF.get(key)
        if scalar is None and full.startswith("tokenizer.ggml.") and full.endswith(_ID_SUFFIX):
            scalar = UINT32
        if scalar is not None and item.kind != scalar:
            _refuse(full, f"of type {_type_name(item)}, expected {VALUE_NAMES[scalar]}")
        element = _ARRAY_OF.get(key)
        if element is not None and (item.kind != ARRAY or item.value.kind != element):
            _refuse(
                full, f"of type {_type_name(item)}, expected an array of {VALUE_NAMES[element]}"
            )
        if scalar == FLOAT32:
            _check_float(full, item.value, _MIN_FLOATS.get(key))
        if key == "*.rope.scaling.type" and item.value not in _ROPE_SCALINGS:
            names = b", ".join(_ROPE_SCALINGS).decode()
            _refuse(
                full, f"{shown(item.value.decode('utf-8', 'replace'))}, expected one of {names}"
            )


def _check_float(key: str, value: float, minimum: float | None) -> None:
    if not math.isfinite(value) or (minimum is not None and value < minimum):
        expected = "a finite number" if minimum is None else f"a finite number from {minimum:g} on"
        _refuse(key, f"{value}, expected {expected}")


def _type_name(item: RawValue) -> str:
    if item.kind == ARRAY:
        return f"array of {VALUE_NAMES[item.value.kind]}"
    return VALUE_NAMES[item.kind]


def _refuse(key: str, message: str) -> Any:
    raise InvalidGguf(f"{key} is {message}")
