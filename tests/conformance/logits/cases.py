"""The small models that the torch backend is measured on: config.json and what is asked of them.

Those of the conversion, whose checkpoints are the same, and what only this backend runs.
"""

from __future__ import annotations

from typing import Any, Final

from tests.conformance.convert.cases import CASES as CONVERTED
from tests.conformance.convert.cases import LONG, TOKENS

GENERATED: Final = 64  # tokens of the greedy continuation
EMBEDDERS: Final = ("bert", "roberta", "xlm-roberta")
_WINDOW: Final = {"sliding_window": 8}  # the prompt is longer, and the continuation much longer
_GPT_OSS: Final[dict[str, Any]] = {
    "model_type": "gpt_oss",
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    **_WINDOW,
    "rope_theta": 150000.0,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 4.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 32,
    },
}

CASES: Final[dict[str, dict[str, Any]]] = {
    **CONVERTED,
    "llama_dynamic": {
        **CONVERTED["llama2"],
        "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
    },
    "mistral_window": {**CONVERTED["mistral"], **_WINDOW},
    "mixtral_window": {**CONVERTED["mixtral"], **_WINDOW},
    "qwen2_window": {
        **CONVERTED["qwen2"],
        **_WINDOW,
        "use_sliding_window": True,
        "max_window_layers": 1,
    },
    "qwen3_bias": {**CONVERTED["qwen3"], "attention_bias": True},
    "qwen3_moe_mixed": {
        **CONVERTED["qwen3_moe"],
        "num_hidden_layers": 3,
        "mlp_only_layers": [1],
        "norm_topk_prob": False,
    },
    "phi3_window": {**CONVERTED["phi3"], **_WINDOW},
    "gpt_oss": _GPT_OSS,
    "roberta": {**CONVERTED["xlm-roberta"], "model_type": "roberta"},
    "llama_wide": {**CONVERTED["llama2"], "hidden_size": 192, "intermediate_size": 320},
}

# Checkpoints of quantization.py's kinds, by the case that they are of
QUANTIZED: Final[dict[str, str]] = {
    "fp8_tensor": "llama2",
    "fp8_blocks": "llama_wide",
    "fp8_rows": "qwen3_moe",
    "int8_rows": "gemma2",
    "int4_symmetric": "mistral",
    "int4_asymmetric": "qwen2",
    "gptq": "phi3",
    "gptq_reordered": "llama3",
    "awq": "qwen2",
    "mxfp4": "gpt_oss",
}
# The seventh token from 3 on; from other starts where a router would be as near to a tie as the
# rounding of bfloat16 is to the number it rounds
_STARTS: Final = {"gpt_oss": 5}


def prompt(name: str) -> list[int]:
    """The tokens that a case is asked about."""
    start = _STARTS.get(name, 3)
    return [(7 * number + start) % 61 + 1 for number in range(LONG.get(name, TOKENS))]
