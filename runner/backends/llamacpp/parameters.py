"""A load plan in llama.cpp's terms.

Knows the fields of its parameter structures, nothing of when they are used.
"""

from __future__ import annotations

import ctypes
from typing import Any

from llama_cpp import llama_cpp as native

from registry.formats.gguf.types import TENSOR_NUMBERS
from runner.backends.host_sampling.logprobs import MAX_SCORE_TOKENS
from runner.backends.host_sampling.threads import threads_for
from runner.backends.llamacpp import devices
from runner.backends.llamacpp.embedding import metadata
from runner.errors import ModelLoadFailed
from runner.types import LoadPlan

MAX_DRAFT_TOKENS = 64
PART_TOKENS = 256  # of a part of a copy: 3 MB of Qwen2.5 0.5B, 36 of an 8B model
_PAD_TOKENS = 256  # what llama.cpp rounds a context up to

_LOAD_MODES = {  # by mmap and mlock
    (False, False): native.LLAMA_LOAD_MODE_NONE,
    (False, True): native.LLAMA_LOAD_MODE_MLOCK,
    (True, False): native.LLAMA_LOAD_MODE_MMAP,
    (True, True): native.LLAMA_LOAD_MODE_MMAP_MLOCK,
}
_SPLIT_MODES = {
    "none": native.LLAMA_SPLIT_MODE_NONE,
    "layer": native.LLAMA_SPLIT_MODE_LAYER,
    "row": native.LLAMA_SPLIT_MODE_ROW,
}
_SAME_BITS = {  # the types of models whose matrices hearth's kernels compute
    getattr(native, f"LLAMA_FTYPE_MOSTLY_{name}")
    for name in ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q2_K_S", "Q3_K_S",
                 "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "IQ4_NL",
                 "MXFP4_MOE")
}  # fmt: skip
_SAME_BITS_CACHES = ("f32", "f16", "bf16", "q8_0")
_MAX_HEAD_DIM = 256  # of hearth's attention
_FLASH_ATTENTION = {
    None: native.LLAMA_FLASH_ATTN_TYPE_AUTO,
    False: native.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    True: native.LLAMA_FLASH_ATTN_TYPE_ENABLED,
}


def model_parameters(plan: LoadPlan) -> Any:
    """llama_model_params for the plan, without a progress callback. Raises ModelLoadFailed."""
    params = native.llama_model_default_params()
    params.n_gpu_layers = plan.gpu_layers
    # Its own kernels want weights copied into another order; hearth's read them as they are
    params.use_extra_bufts = not plan.native_kernels
    params.load_mode = _LOAD_MODES[plan.use_mmap, plan.use_mlock]
    if plan.gpu_layers and plan.gpu_devices:
        kept = [devices.device_list(plan.gpu_devices), devices.shares(plan.tensor_split)]
        params.devices = ctypes.cast(kept[0], ctypes.c_void_p)
        params.split_mode, params.tensor_split = _SPLIT_MODES[plan.split_mode], kept[1]
        if plan.cpu_moe_layers:
            kept.append(devices.experts_on_cpu(plan.cpu_moe_layers))
            params.tensor_buft_overrides = ctypes.cast(kept[2], ctypes.c_void_p)
        params.kept = kept  # for as long as they are pointed to
    return params


def generation_parameters(plan: LoadPlan, model: Any) -> Any:
    """llama_context_params for many sequences in one cache. Raises ModelLoadFailed."""
    params = _common(plan, model)
    params.n_ctx = plan.pool_tokens
    params.n_batch = params.n_ubatch = min(plan.batch_tokens, plan.pool_tokens)
    # One more, through which parts of sequences are copied
    params.n_seq_max = _sequences(plan, copies_parts(model))
    params.swa_full = not plan.window_cache
    # Room for logits is reserved in the compute buffer: one row a sequence and some for prompts
    # whose log-probabilities are asked for, not one a token
    params.n_outputs_max = params.n_seq_max + MAX_SCORE_TOKENS + max_draft_tokens(plan, model)
    return params


def ensure_batch_tokens(params: Any, tokens: int) -> None:
    """Let a batch have so many tokens: an image whose tokens see each other."""
    params.n_batch = params.n_ubatch = max(params.n_batch, tokens)


def max_draft_tokens(plan: LoadPlan, model: Any) -> int:
    """Most tokens of a step's drafts together. Where nothing is said, there are some if there is a
    model for them, or the bits of a token do not depend on how many are computed with it."""
    wanted: bool | int | None = plan.draft_tokens
    if wanted is None:
        wanted = plan.draft_path is not None or has_same_bits(plan, model)
    return MAX_DRAFT_TOKENS if wanted else 0


def has_same_bits(plan: LoadPlan, model: Any) -> bool:
    """Whether a token has the same bits whatever is computed with it, by any number of threads:
    where hearth's kernels compute the products and attention. llama.cpp's own adds parts of the
    sums of a single token, one for each thread."""
    kind = native.llama_model_ftype(model) & ~native.LLAMA_FTYPE_GUESSED
    architecture = metadata(model, "general.architecture")
    named = metadata(model, f"{architecture}.attention.key_length")
    heads = max(1, native.llama_model_n_head(model))
    head_dim = int(named) if named else native.llama_model_n_embd(model) // heads
    same = kind in _SAME_BITS and plan.kv_cache_type in _SAME_BITS_CACHES
    return plan.native_kernels and same and head_dim <= _MAX_HEAD_DIM


def embedding_parameters(plan: LoadPlan, model: Any, *, pooling: int, whole_inputs: bool) -> Any:
    """llama_context_params for embeddings of up to plan.context_length tokens each. whole_inputs:
    an input must be computed in one piece."""
    params = _common(plan, model)
    params.embeddings = True
    params.pooling_type = pooling
    params.n_ctx = -(-max(plan.context_length, plan.batch_tokens) // _PAD_TOKENS) * _PAD_TOKENS
    params.n_batch = params.n_ubatch = params.n_ctx if whole_inputs else plan.batch_tokens
    params.n_seq_max = _sequences_dividing(params.n_ubatch, _sequences(plan))
    return params


def _sequences_dividing(batch: int, max_sequences: int) -> int:
    """The largest power of two up to most that divides batch: llama.cpp plans the pooling of
    equal shares of a batch, and ends the process where they are not whole."""
    return next(
        count for count in (64, 32, 16, 8, 4, 2, 1) if count <= max_sequences and batch % count == 0
    )


def _common(plan: LoadPlan, model: Any) -> Any:
    params = native.llama_context_default_params()
    threads = plan.threads or threads_for(native.llama_model_size(model))
    params.n_threads = params.n_threads_batch = threads
    params.type_k = params.type_v = _cache_type(plan)
    params.flash_attn_type = _FLASH_ATTENTION[plan.flash_attention]
    params.kv_unified = True
    params.offload_kqv = True
    params.no_perf = True
    params.rope_freq_base = plan.rope_frequency_base
    params.rope_freq_scale = plan.rope_frequency_scale
    return params


def is_recurrent(model: Any) -> bool:
    """Whether what it keeps of a sequence can only be had as a whole, of some layers at least."""
    return bool(native.llama_model_is_recurrent(model) or native.llama_model_is_hybrid(model))


def copies_parts(model: Any) -> bool:
    """Whether sequences are copied in parts. Not those of layers with an attention window, of which
    llama.cpp copies the last cells only: of the window."""
    return not is_recurrent(model) and native.llama_model_n_swa(model) == 0


def _sequences(plan: LoadPlan, more: int = 0) -> int:
    return min(plan.max_sequences + more, int(native.llama_max_parallel_sequences()))


def _cache_type(plan: LoadPlan) -> int:
    name = plan.kv_cache_type
    kind = TENSOR_NUMBERS.get(name.upper())
    if kind is None:
        raise ModelLoadFailed(f"llama.cpp has no cache type {name!r}; use f16 or q8_0")
    if plan.flash_attention is False and name not in ("f32", "f16", "bf16"):
        raise ModelLoadFailed(
            f"the cache type {name} needs flash attention, which is disabled; "
            "enable it or use the cache type f16"
        )
    return kind
