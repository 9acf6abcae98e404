"""config.json of the small models that the conversion is measured on."""

from __future__ import annotations

from typing import Any, Final

TOKENS: Final = 12  # of the prompt
LONG: Final = {"phi3_long": 40}  # prompts beyond the first training's context

_SMALL: Final[dict[str, Any]] = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
_MOE: Final[dict[str, Any]] = {"num_experts_per_tok": 2, "norm_topk_prob": True}
_LLAMA3: Final[dict[str, Any]] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_GEMMA: Final[dict[str, Any]] = {
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "sliding_window": 4,
}
_GEMMA3_TEXT: Final[dict[str, Any]] = {
    **_SMALL,
    **_GEMMA,
    "num_hidden_layers": 7,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
_LONGROPE: Final[dict[str, Any]] = {
    "model_type": "phi3",
    **_SMALL,
    "pad_token_id": 0,
    "partial_rotary_factor": 0.5,
    "max_position_embeddings": 1024,
    "rope_scaling": {
        "type": "longrope",
        "short_factor": [1.0, 1.1, 1.3, 1.5],
        "long_factor": [1.0, 2.0, 4.0, 6.0],
    },
}
_YARN: Final[dict[str, Any]] = {
    "rope_type": "yarn",
    "factor": 4.0,
    "rope_theta": 1000000.0,
    "original_max_position_embeddings": 32,
}
_GEMMA3_ROPE: Final[dict[str, Any]] = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0},
}
_ENCODER: Final[dict[str, Any]] = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 48,
    "type_vocab_size": 2,
}

CASES: Final[dict[str, dict[str, Any]]] = {
    "llama2": {"model_type": "llama", **_SMALL, "num_key_value_heads": 4},
    "llama3": {
        "model_type": "llama",
        **_SMALL,
        "tie_word_embeddings": True,
        "rope_theta": 500000.0,
        "rope_scaling": _LLAMA3,
    },
    "llama_linear": {
        "model_type": "llama",
        **_SMALL,
        "attention_bias": True,
        "mlp_bias": True,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
    "mistral": {"model_type": "mistral", **_SMALL, "head_dim": 32, "sliding_window": None},
    "mixtral": {"model_type": "mixtral", **_SMALL, **_MOE, "num_local_experts": 4},
    "qwen2": {"model_type": "qwen2", **_SMALL, "rope_theta": 1000000.0},
    "qwen2_yarn": {"model_type": "qwen2", **_SMALL, "rope_parameters": _YARN},
    "qwen3": {"model_type": "qwen3", **_SMALL, "head_dim": 32, "tie_word_embeddings": True},
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        **_SMALL,
        **_MOE,
        "head_dim": 32,
        "num_experts": 4,
        "moe_intermediate_size": 32,
    },
    "gemma2": {"model_type": "gemma2", **_SMALL, **_GEMMA},
    "gemma3_text": {
        "model_type": "gemma3_text",
        **_SMALL,
        **_GEMMA,
        "num_hidden_layers": 7,
        "rope_parameters": _GEMMA3_ROPE,
    },
    "gemma3": {
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", **_GEMMA3_TEXT},
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 16,
            "patch_size": 4,
        },
        "mm_tokens_per_image": 4,
        "tie_word_embeddings": True,
    },
    "phi3": {"model_type": "phi3", **_SMALL, "pad_token_id": 0, "sliding_window": 64},
    "phi3_short": {**_LONGROPE, "original_max_position_embeddings": 512},
    "phi3_long": {**_LONGROPE, "original_max_position_embeddings": 32},
    "bert": {"model_type": "bert", **_ENCODER, "layer_norm_eps": 1e-12},
    "xlm-roberta": {"model_type": "xlm-roberta", **_ENCODER, "pad_token_id": 1},
}
