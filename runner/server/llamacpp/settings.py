"""generation_settings: how an answer is generated, in the words of llama-server."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from runner.types import GenerateRequest, SamplingParams

_RANDOM_SEED = 2**32 - 1  # what llama.cpp has for a fresh one
_SAME = (
    *("temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p"),
    *("top_n_sigma", "xtc_probability", "xtc_threshold", "typical_p", "repeat_last_n"),
    *("repeat_penalty", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base"),
    *("dry_allowed_length", "dry_penalty_last_n", "mirostat", "mirostat_tau", "mirostat_eta"),
)
_SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc",
             "temperature")  # fmt: skip


def generation_settings(
    request: GenerateRequest, end_tokens: tuple[int, ...], **own: Any
) -> dict[str, Any]:
    """Of a completed request. end_tokens: those that ignore_eos makes impossible. own: fields that
    only the surface knows."""
    sampling = request.sampling
    n_predict = -1 if request.max_tokens is None else request.max_tokens
    biases = [{"token": token, "bias": _bias(bias)} for token, bias in sampling.logit_bias]
    if request.ignore_eos:
        biases += [{"token": token, "bias": None} for token in end_tokens]
    return {
        **sampling_settings(sampling),
        "n_ctx": request.context_length or 0,
        "stop": list(request.stop),
        "max_tokens": n_predict,
        "n_predict": n_predict,
        "n_keep": request.n_keep or 0,
        "n_discard": 0,
        "ignore_eos": request.ignore_eos,
        "logit_bias": biases,
        "grammar": "" if request.grammar is None else request.grammar.text,
        "lora": [
            {"id": number, "scale": scale}
            for number, scale in (request.adapter_scales or {}).items()
        ],
        **own,
    }


def sampling_settings(sampling: SamplingParams) -> dict[str, Any]:
    """What concerns the choice of tokens."""
    return {
        "seed": _RANDOM_SEED if sampling.seed is None else sampling.seed,
        **{name: getattr(sampling, name) for name in _SAME},
        "dry_sequence_breakers": list(sampling.dry_sequence_breakers),
        "adaptive_target": -1.0,
        "adaptive_decay": 0.9,
        "samplers": list(_SAMPLERS),
        "n_probs": sampling.logprobs or 0,
        "min_keep": 0,
    }


def end_tokens_of(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """The tokens that end an answer, by the model file."""
    names = ("eos", "eot", "eom")
    found = (metadata.get(f"tokenizer.ggml.{name}_token_id") for name in names)
    return tuple(dict.fromkeys(token for token in found if isinstance(token, int)))


def _bias(bias: float) -> float | None:
    return bias if math.isfinite(bias) else None
