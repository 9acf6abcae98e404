"""Loads a GGUF file into llama.cpp.

Owns the order of the steps and what happens when one fails. The file was checked in Python
before: llama.cpp ends the process on some malformed ones.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_cpp import llama_cpp as native

from kernels.native import library_path
from kernels.native.adapters import AdapterLibrary
from runner.backends.backend import (
    Backend,
    BackendError,
    Capacity,
    LoadedBackend,
    LoadProgress,
    PairEncoder,
)
from runner.backends.host_sampling import native_log
from runner.backends.host_sampling.library import chat_template, start_library
from runner.backends.host_sampling.logprobs import MAX_SCORE_TOKENS
from runner.backends.host_sampling.tokenizer import LlamaCppTokenizer
from runner.backends.llamacpp import kernels
from runner.backends.llamacpp.adapters import FixedAdapters
from runner.backends.llamacpp.backend import LlamaCppBackend
from runner.backends.llamacpp.context import Context
from runner.backends.llamacpp.embedding import (
    LlamaCppEmbeddingBackend,
    metadata,
    needs_whole_inputs,
    pooling_of,
)
from runner.backends.llamacpp.gelu import choose_gelu
from runner.backends.llamacpp.mixed_adapters import MixedAdapters
from runner.backends.llamacpp.parameters import (
    PART_TOKENS,
    copies_parts,
    embedding_parameters,
    ensure_batch_tokens,
    generation_parameters,
    has_same_bits,
    is_recurrent,
    max_draft_tokens,
    model_parameters,
)
from runner.backends.llamacpp.reranker import create_reranker
from runner.backends.llamacpp.state_format import state_format
from runner.backends.llamacpp.thread_count import ThreadCount
from runner.errors import ModelLoadFailed
from runner.types import LoadPlan

if TYPE_CHECKING:
    from runner.backends.llamacpp.vision.encoder import LlamaCppVisionEncoder


_WIDE = (  # the types of models whose matrices have more than eight bits
    native.LLAMA_FTYPE_ALL_F32,
    native.LLAMA_FTYPE_MOSTLY_F16,
    native.LLAMA_FTYPE_MOSTLY_BF16,
)


def load(plan: LoadPlan, progress: LoadProgress) -> LoadedBackend:
    """Load plan.path as plan says; progress is called on the way, in this thread. Raises
    ModelLoadFailed with the library's own last words, and what progress raises."""
    start_library()
    if plan.numa:
        native.llama_numa_init(native.GGML_NUMA_STRATEGY_DISTRIBUTE)
    plan = with_kernels(plan)
    with native_log.library_errors() as library_errors:
        model = load_model(plan, progress, library_errors)
        architecture = metadata(model, "general.architecture")
        choose_gelu(architecture)
        if plan.native_kernels:
            kernels.choose_inputs(architecture)
        vision = None
        adapters: FixedAdapters | None = None
        try:
            params = _context_parameters(plan, model)
            vision = _vision(plan, model, library_errors)
            if vision is not None:
                ensure_batch_tokens(params, vision.max_noncausal_tokens)
            handle = native.llama_init_from_model(model, params)
            if not handle:
                raise _failure(plan, "no context could be created for it", library_errors)
            try:
                if plan.embedding and plan.adapters:
                    adapters = apply_adapters(plan, model, handle, library_errors)
            except BaseException:
                native.llama_free(handle)
                raise
        except BaseException:
            if vision is not None:
                vision.close()
            native.llama_model_free(model)
            raise
    context = Context(model, handle, adapters, _threads(plan, model, params))
    if not plan.embedding and not context.memory:
        context.close()
        raise ModelLoadFailed(
            f"the model {Path(plan.path).name} is an encoder: it supports embeddings, not text "
            "generation"
        )
    backend, pair = _backend(plan, context, params, vision)
    return LoadedBackend(
        backend=backend,
        tokenizer=LlamaCppTokenizer(context.vocabulary),
        chat_template=chat_template(model),
        tool_template=chat_template(model, "tool_use"),
        pair=pair,
        vision=vision,
    )


def _threads(plan: LoadPlan, model: Any, parameters: Any) -> ThreadCount | None:
    """What changes the number of threads, unless the plan names it or the answers could change."""
    if plan.embedding or plan.threads or parameters.n_threads == 1:
        return None
    return ThreadCount(parameters.n_threads) if has_same_bits(plan, model) else None


def apply_adapters(
    plan: LoadPlan, model: Any, context: Any, library_errors: Sequence[str]
) -> FixedAdapters:
    """Let the plan's adapters act, with their scales, in all that context computes from here on.
    To be closed with the context. Raises ModelLoadFailed with the library's last words."""
    mixed = _mixed_adapters(plan, model, is_recurrent(model))
    adapters = FixedAdapters(plan, model, mixed, library_errors)
    try:
        adapters.apply(context)
    except BackendError as error:
        raise ModelLoadFailed(str(error)) from None
    return adapters


def with_kernels(plan: LoadPlan) -> LoadPlan:
    """The plan as it can be had: with hearth's kernels, and then with flash attention unless it is
    switched off, or without. Asked to decide, llama.cpp leaves flash attention out when another
    device than the layer's would compute it."""
    if not (plan.native_kernels and kernels.register_kernels()):
        return replace(plan, native_kernels=False)
    return replace(plan, flash_attention=plan.flash_attention is not False)


def _backend(
    plan: LoadPlan,
    context: Context,
    parameters: Any,
    vision: LlamaCppVisionEncoder | None,
) -> tuple[Backend, PairEncoder | None]:
    if not plan.embedding:
        return _generation(plan, context, parameters, vision), None
    capacity = _embedding_capacity(plan, context)
    if not plan.ranking:
        return LlamaCppEmbeddingBackend(
            context,
            capacity,
            step_tokens=plan.batch_tokens,
            parameters=lambda pooling: _embedding_parameters(plan, context.model, pooling),
        ), None
    try:
        return create_reranker(Path(plan.path), context, capacity, plan.batch_tokens)
    except BaseException:
        context.close()
        raise


def _embedding_parameters(plan: LoadPlan, model: Any, pooling: int) -> Any:
    whole = needs_whole_inputs(model)
    return embedding_parameters(plan, model, pooling=pooling, whole_inputs=whole)


def load_model(plan: LoadPlan, progress: LoadProgress, library_errors: Sequence[str] = ()) -> Any:
    """The native model, to be freed by the caller. Raises as load does."""
    raised: list[BaseException] = []

    def report(share: float, _user_data: object) -> bool:
        try:
            progress(share)
        except BaseException as error:
            raised.append(error)  # through C it cannot travel: stop the load and raise it there
        return not raised

    params = model_parameters(plan)
    callback = params.progress_callback = native.llama_progress_callback(report)
    model = native.llama_model_load_from_file(os.fsencode(plan.path), params)
    del callback  # it had to live until here
    if raised:
        if model:
            native.llama_model_free(model)
        raise raised[0]
    if not model:
        raise _failure(plan, "llama.cpp cannot load it", library_errors)
    return model


def _vision(
    plan: LoadPlan, model: Any, library_errors: Sequence[str]
) -> LlamaCppVisionEncoder | None:
    if plan.projector is None or plan.embedding:
        return None
    from runner.backends.llamacpp.vision.encoder import load_vision_encoder

    return load_vision_encoder(Path(plan.projector), plan, model, library_errors)


def _context_parameters(plan: LoadPlan, model: Any) -> Any:
    if plan.embedding:
        pooling = native.LLAMA_POOLING_TYPE_RANK if plan.ranking else pooling_of(model)
        return _embedding_parameters(plan, model, pooling)
    return generation_parameters(plan, model)


def _generation(
    plan: LoadPlan,
    context: Context,
    parameters: Any,
    vision: LlamaCppVisionEncoder | None,
) -> LlamaCppBackend:
    handle, model = context.handle, context.model
    recurrent, parts = is_recurrent(model), copies_parts(model)
    window = not recurrent and native.llama_model_n_swa(model) > 0
    pool_tokens = native.llama_n_ctx(handle)
    most_tokens = max(pool_tokens, plan.max_pool_tokens or 0)
    batch_tokens = min(plan.batch_tokens, native.llama_n_batch(handle))
    return LlamaCppBackend(
        context,
        Capacity(
            pool_tokens=pool_tokens,
            max_sequences=native.llama_n_seq_max(handle) - parts,
            context_length=min(plan.max_context_length, most_tokens),
            batch_tokens=batch_tokens,
            vocabulary=context.vocabulary_size,
            block_size=1,
            partial_share=not recurrent and not window,
            window=window,
            can_save=True,
            state_format=state_format(plan, context),
            part_tokens=PART_TOKENS if parts else 0,
            score_tokens=min(MAX_SCORE_TOKENS, batch_tokens),
            draft_tokens=0 if recurrent else max_draft_tokens(plan, model),
            hidden_states=True,
        ),
        vision,
        parameters,
        _mixed_adapters(plan, model, recurrent),
    )


def _mixed_adapters(plan: LoadPlan, model: Any, recurrent: bool) -> MixedAdapters | None:
    """Where hearth's kernels compute batches whose tokens llama.cpp leaves in their order."""
    path = library_path("llamacpp")
    if not plan.native_kernels or recurrent or path is None:
        return None
    kind = native.llama_model_ftype(model) & ~native.LLAMA_FTYPE_GUESSED
    return MixedAdapters(AdapterLibrary(path), narrow=kind not in _WIDE)


def _embedding_capacity(plan: LoadPlan, context: Context) -> Capacity:
    handle = context.handle
    # Beyond what it was trained for, an encoder has no positions, and llama.cpp ends the process
    trained = native.llama_model_n_ctx_train(context.model)
    return Capacity(
        pool_tokens=native.llama_n_ctx(handle),
        max_sequences=native.llama_n_seq_max(handle),
        context_length=min(plan.context_length, trained),
        batch_tokens=native.llama_n_batch(handle),
        vocabulary=context.vocabulary_size,
        block_size=1,
        partial_share=False,
        vector_width=native.llama_model_n_embd_out(context.model),
    )


def _failure(plan: LoadPlan, what: str, library_errors: Sequence[str]) -> ModelLoadFailed:
    reason = native_log.last_errors(library_errors)
    name = Path(plan.path).name
    return ModelLoadFailed(f"the model file {name} was rejected: {what} ({reason})")
