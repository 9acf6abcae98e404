"""Loads a checkpoint or a GGUF file onto a device.

Owns the order of the steps: config, memory plan, weights, cache. Each weight goes straight to the
device; the machine's memory holds no second copy of the model.
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from registry.formats.gguf import GgufHeader
from runner.backends.backend import Backend, Capacity, LoadedBackend, LoadProgress
from runner.backends.host_sampling.logprobs import MAX_SCORE_TOKENS
from runner.backends.host_sampling.threads import threads_for
from runner.backends.torch.architectures import model_class
from runner.backends.torch.attention.block_pool import BlockPool
from runner.backends.torch.attention.paged import create_caches
from runner.backends.torch.backend import TorchBackend
from runner.backends.torch.config import ConvertError, ModelConfig
from runner.backends.torch.cuda.launch_ahead import launch_ahead
from runner.backends.torch.embedding import TorchEmbeddingBackend, pooling_of
from runner.backends.torch.layers.decoder import Decoder
from runner.backends.torch.layers.encoder import Encoder
from runner.backends.torch.loading.adapters import LoraAdapters
from runner.backends.torch.loading.memory_plan import TorchMemoryPlan, plan_memory
from runner.backends.torch.loading.source import ModelSource, open_source
from runner.backends.torch.loading.weights import WeightLoader, WeightPlacement
from runner.backends.torch.tokenizer import read_vocabulary
from runner.errors import ModelLoadFailed
from runner.types import LoadPlan

log = logging.getLogger(__name__)


def load(plan: LoadPlan, progress: LoadProgress) -> LoadedBackend:
    """Load plan.path as plan says; progress is called on the way. Raises ModelLoadFailed, and
    what progress raises."""
    path = Path(plan.path)
    source = open_source(path)
    if source.header is None:
        raise ModelLoadFailed(
            f"{path.name} is a folder, which has no vocabulary that a worker can read; hearth"
            " create makes a model file of it, in the type its weights have"
        )
    memory = plan_memory(
        source.config,
        plan,
        source.elements,
        source.stored_bytes,
        quantized=source.quantized,
        in_place=source.in_place,
    )
    log.info("memory plan of %s: %s", path.name, memory.describe())
    torch.set_num_threads(plan.threads or threads_for(memory.weights_bytes))
    context = min(plan.context_length, source.config.context_length)
    placement = WeightPlacement(
        memory.dtype,
        torch.device(memory.device),
        context,
        memory.packed,
        memory.narrow and not plan.embedding,
        memory.native,
        plan.use_mmap,
        plan.quantize,
    )
    vocabulary = read_vocabulary(path)
    try:
        with torch.inference_mode():
            adapters = LoraAdapters(source.header, placement.dtype, placement.device)
            model = build_model(source, placement, progress, adapters)
            backend = (
                _embedder(plan, source.header, model, memory, context, adapters)
                if plan.embedding
                else generator(plan, source.config, memory, model, context, adapters)
            )
    except (RuntimeError, MemoryError) as error:
        if not _is_shortage(error):
            raise
        raise ModelLoadFailed(
            f"not enough memory for {path.name}, which needs {memory.describe()}; try a smaller "
            "num_ctx"
        ) from error
    progress(1.0)
    return LoadedBackend(
        backend=backend,
        tokenizer=vocabulary.tokenizer,
        chat_template=vocabulary.chat_template,
        tool_template=vocabulary.tool_template,
    )


def build_model(
    source: ModelSource,
    placement: WeightPlacement,
    progress: LoadProgress | None = None,
    adapters: LoraAdapters | None = None,
) -> Decoder | Encoder:
    """The model of a source with its weights in place, every tensor used. Raises
    ModelLoadFailed, and what progress raises."""
    build = model_class(source.config.model_type)
    weights = WeightLoader(
        source.tensors, placement, source.config.quantization, progress, adapters
    )
    try:
        model: Decoder | Encoder = build(source.config, weights)
    except ConvertError as error:
        raise ModelLoadFailed(f"the model's config is invalid: {error}") from error
    weights.check_all_used()
    return model


def _is_shortage(error: Exception) -> bool:
    """Whether memory was short. On a CPU torch says so in the text of a plain RuntimeError."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(
        error
    )


def _embedder(
    plan: LoadPlan,
    header: GgufHeader,
    model: Decoder | Encoder,
    memory: TorchMemoryPlan,
    context: int,
    adapters: LoraAdapters,
) -> TorchEmbeddingBackend:
    if plan.ranking or isinstance(model, Decoder):
        what = "scores pairs of texts" if plan.ranking else "is not an encoder"
        raise ModelLoadFailed(
            f"{header.path.name} {what}: the backend torch computes the embeddings of encoders"
            " only. Use the backend llamacpp"
        )
    max_tokens = min(context, model.max_tokens)
    capacity = Capacity(
        pool_tokens=max_tokens,
        max_sequences=plan.max_sequences,
        context_length=max_tokens,
        batch_tokens=plan.batch_tokens,
        vocabulary=len(model.word_embeddings),
        block_size=1,
        partial_share=False,
        vector_width=model.word_embeddings.shape[1],
    )
    for path, _ in plan.adapters:
        adapters.load(path, Path(path))
    adapters.act_everywhere(plan.adapters)
    return TorchEmbeddingBackend(model, capacity, pooling_of(header), memory.device)


def generator(
    plan: LoadPlan,
    config: ModelConfig,
    memory: TorchMemoryPlan,
    model: Decoder | Encoder,
    context: int,
    adapters: LoraAdapters | None = None,
) -> Backend:
    """A model with its cache, as memory plans it. adapters: those that it may have. Raises
    ModelLoadFailed for one that only reads, and what torch raises when memory is short."""
    if isinstance(model, Encoder):
        raise ModelLoadFailed(
            f"the model {Path(plan.path).name} is an encoder: it supports embeddings, not text "
            "generation"
        )
    shape = config.shape
    caches = create_caches(
        shape.layers,
        (memory.blocks, memory.block_size, shape.heads_kv, shape.head),
        memory.cache_dtype,
        memory.device,
    )
    capacity = Capacity(
        pool_tokens=max(plan.pool_tokens, context),
        max_sequences=plan.max_sequences,
        context_length=context,
        batch_tokens=plan.batch_tokens,
        vocabulary=shape.vocabulary,
        block_size=1,
        partial_share=True,
        can_save=True,
        score_tokens=MAX_SCORE_TOKENS,
        draft_tokens=MAX_SCORE_TOKENS if plan.draft_tokens else 0,
        hidden_states=True,
        input_width=shape.hidden,
    )
    pool = BlockPool(memory.blocks, memory.block_size, plan.max_sequences, context)
    backend = TorchBackend(model, capacity, caches, pool, memory.device, adapters)
    # Which tokens a step with drafts gives is known once it was read: the next one has to wait.
    return backend if plan.draft_tokens else launch_ahead(backend)
