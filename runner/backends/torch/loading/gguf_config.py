"""The metadata of a GGUF file as the config.json of the same model.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and llama.cpp's llama-arch.cpp.
What the keys mean to a model is for torch/config.py and models/ to say.
"""

from __future__ import annotations

from typing import Any

from registry.errors import shown
from registry.formats.gguf import GgufHeader
from runner.backends.torch.config import DIVISORS, Config
from runner.backends.torch.loading.gguf_names import MODEL_TYPES, model_type
from runner.errors import ModelLoadFailed

_ROPE_BASE = 10000.0
_SAME_MEANING = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "feed_forward_length": "intermediate_size",
}
_GEMMA = {"gemma2": 46, "gemma3_text": 62}  # layers of the largest, scaled in another way
# Tensors that say how the rope is stretched, of Llama 3.1 and of Phi-3; source.py reads them
ROPE_FACTORS = {
    "divisors": "rope_freqs.weight",
    "long_factor": "rope_factors_long.weight",
    "short_factor": "rope_factors_short.weight",
}
_ORIGINAL = {"original_context_length": "original_max_position_embeddings"}
_STRETCHED = {
    "factor": "factor",
    **_ORIGINAL,
    "yarn_attn_factor": "attention_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_SCALING: dict[str, dict[str, str]] = {
    DIVISORS: {},
    "longrope": {**_ORIGINAL, "attn_factor": "attention_factor"},
    "linear": _STRETCHED,
    "yarn": _STRETCHED,
}


def config_from_gguf(header: GgufHeader) -> Config:
    """The config.json of the file's model. Raises ModelLoadFailed for an architecture that is
    not known."""
    architecture = header.architecture
    experts = header.expert_count or 0
    kind = model_type(architecture, experts)
    if kind is None:
        known = ", ".join(sorted(MODEL_TYPES))
        raise ModelLoadFailed(
            f"the torch backend does not support the architecture {shown(architecture)}; it knows"
            f" {known}. Use the backend llamacpp"
        )
    values: dict[str, Any] = {"model_type": kind}
    for key, name in _SAME_MEANING.items():
        found = header.architecture_value(key)
        if found is not None:
            values[name] = found
    # 0 says that there is none.
    values["sliding_window"] = header.architecture_value("attention.sliding_window") or None
    values |= _shape(header, experts)
    values |= _rope(header)
    if experts:
        values["norm_topk_prob"] = True
    if kind == "gpt_oss" and "rope_scaling" in values:
        values["rope_scaling"]["truncate"] = False  # as the model was trained
    if kind in _GEMMA:
        values |= _gemma(header, _GEMMA[kind])
    return Config(values, header.path.name)


def _gemma(header: GgufHeader, largest: int) -> dict[str, Any]:
    """What llama.cpp knows of Gemma without being told. Source: its gemma2.cpp, gemma3.cpp."""
    hidden, heads = header.architecture_value("embedding_length"), header.head_count
    scalar = header.key_length
    if header.block_count == largest and hidden and heads:
        scalar = hidden // heads
    values: dict[str, Any] = {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": scalar,
    }
    local = header.architecture_value("rope.freq_base_swa")
    if local is not None:
        values["rope_local_base_freq"] = local
    pattern = header.architecture_value("attention.sliding_window_pattern")
    if isinstance(pattern, int):
        values["sliding_window_pattern"] = pattern
    elif isinstance(pattern, list | tuple):
        kinds = {True: "sliding_attention", False: "full_attention"}
        values["layer_types"] = [kinds[bool(sliding)] for sliding in pattern]
    return values


def _shape(header: GgufHeader, experts: int) -> dict[str, Any]:
    names = {tensor.name for tensor in header.tensors}
    values: dict[str, Any] = {
        "vocab_size": _rows(header, "token_embd.weight") or header.vocabulary_size,
        "num_attention_heads": header.head_count,
        "num_key_value_heads": header.head_count_kv,
        "head_dim": header.key_length,
        "tie_word_embeddings": "output.weight" not in names,
        "attention_bias": "blk.0.attn_q.bias" in names,
        "mlp_bias": "blk.0.ffn_gate.bias" in names,
    }
    kinds = _rows(header, "token_types.weight")
    if kinds is not None:
        values["type_vocab_size"] = kinds
    if experts:
        values |= {"num_local_experts": experts, "num_experts": experts}
    return {key: value for key, value in values.items() if value is not None}


def _rows(header: GgufHeader, name: str) -> int | None:
    return next((t.dimensions[-1] for t in header.tensors if t.name == name), None)


def _rope(header: GgufHeader) -> dict[str, Any]:
    values: dict[str, Any] = {
        "rope_theta": header.architecture_value("rope.freq_base") or _ROPE_BASE
    }
    width, head = header.architecture_value("rope.dimension_count"), header.key_length
    if width is not None and head is not None and width < head:
        values["partial_rotary_factor"] = width / head
    kind = header.architecture_value("rope.scaling.type")
    kind = kind if kind in ("linear", "yarn") else None
    names = {tensor.name for tensor in header.tensors}
    if ROPE_FACTORS["divisors"] in names:
        kind = DIVISORS
    elif ROPE_FACTORS["long_factor"] in names:
        kind = "longrope"
    if kind is not None:
        keys = ((key, header.architecture_value(f"rope.scaling.{key}")) for key in _SCALING[kind])
        found = {_SCALING[kind][key]: value for key, value in keys if value is not None}
        values["rope_scaling"] = {"rope_type": kind, **found}
    return values
