"""Loads a checkpoint or a GGUF file onto a device.

Owns the order of the steps: config, memory plan, weights, cache. Each weight goes straight to the
device; the machine's memory holds no second copy of the model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from registry.formats.gguf import GgufHeader
from runner.backends.backend import Backend, Capacity, Followers, LoadedBackend, LoadProgress
from runner.backends.host_sampling.logprobs import MAX_SCORE_TOKENS
from runner.backends.host_sampling.threads import threads_for
from runner.backends.torch.architectures import model_class
from runner.backends.torch.attention.block_pool import BlockPool
from runner.backends.torch.attention.paged import create_caches
from runner.backends.torch.backend import TorchBackend
from runner.backends.torch.config import ConvertError, ModelConfig
from runner.backends.torch.cuda.launch_ahead import launch_ahead
from runner.backends.torch.embedding import TorchEmbeddingBackend, pooling_of
from runner.backends.torch.executor import CacheGeometry, Executor, LocalExecutor
from runner.backends.torch.layers.decoder import LanguageModel
from runner.backends.torch.layers.encoder import Encoder
from runner.backends.torch.loading.adapters import LoraAdapters
from runner.backends.torch.loading.memory_plan import TorchMemoryPlan, plan_memory
from runner.backends.torch.loading.source import ModelSource, open_source
from runner.backends.torch.loading.split_source import SplitSource
from runner.backends.torch.loading.weights import WeightLoader, WeightPlacement
from runner.backends.torch.parallel.communication import NO_RANKS, Ranks
from runner.backends.torch.parallel.rank_executor import LeadingExecutor, RankExecutor
from runner.backends.torch.tokenizer import read_vocabulary
from runner.errors import ModelLoadFailed
from runner.types import LoadPlan

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in place, or what one of several ranks has of it. context: its most tokens."""

    config: ModelConfig
    memory: TorchMemoryPlan
    model: LanguageModel | Encoder
    context: int
    adapters: LoraAdapters
    ranks: Ranks = NO_RANKS


def load(
    plan: LoadPlan, progress: LoadProgress, followers: Followers | None = None
) -> LoadedBackend:
    """Load plan.path as plan says; progress is called on the way. followers: the model's other
    processes, where there are some; they load their parts at the same time. Raises
    ModelLoadFailed, and what progress raises."""
    path = Path(plan.path)
    source = open_source(path)
    if source.header is None:
        raise ModelLoadFailed(
            f"{path.name} is a folder, which has no vocabulary that a worker can read; hearth"
            " create makes a model file of it, in the type its weights have"
        )
    ranks = NO_RANKS if followers is None else followers.joined
    loaded = load_model(plan, source, progress, ranks)
    vocabulary = read_vocabulary(path)
    with torch.inference_mode(), _shortage_named(path.name, loaded.memory):
        backend = (
            _embedder(plan, source.header, loaded)
            if plan.embedding
            else generator(plan, loaded, followers)
        )
    if followers is not None:
        followers.wait_loaded()
    progress(1.0)
    return LoadedBackend(
        backend=backend,
        tokenizer=vocabulary.tokenizer,
        chat_template=vocabulary.chat_template,
        tool_template=vocabulary.tool_template,
    )


def load_model(
    plan: LoadPlan, source: ModelSource, progress: LoadProgress, ranks: Ranks = NO_RANKS
) -> LoadedModel:
    """The model of a source, or this rank's part of it. Raises ModelLoadFailed, and what progress
    raises."""
    if ranks.layout.ranks > 1 and plan.embedding:
        raise ModelLoadFailed("an embedding model is not split between several processes")
    name = Path(plan.path).name
    source = source.part(ranks.layout, plan.quantize)
    memory = plan_memory(source.config, plan, source.weights, ranks.layout)
    log.info("memory plan of %s: %s", name, memory.describe())
    torch.set_num_threads(plan.threads or _threads(memory, ranks))
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
        ranks,
    )
    with torch.inference_mode(), _shortage_named(name, memory):
        adapters = LoraAdapters(
            source.header,
            placement.dtype,
            placement.device,
            native=placement.native,
            narrow=placement.narrow or placement.dtype == torch.bfloat16,
            part=source.tensors if isinstance(source.tensors, SplitSource) else None,
        )
        model = build_model(source, placement, progress, adapters)
    return LoadedModel(source.config, memory, model, context, adapters, ranks)


def _threads(memory: TorchMemoryPlan, ranks: Ranks) -> int:
    """Of this process: on a CPU the ranks share its cores."""
    count = ranks.layout.ranks if memory.device == "cpu" else 1
    return max(1, threads_for(memory.weights_bytes * count) // count)


@contextmanager
def _shortage_named(name: str, memory: TorchMemoryPlan) -> Iterator[None]:
    """Too little memory becomes ModelLoadFailed with the plan."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _is_shortage(error):
            raise
        raise ModelLoadFailed(
            f"not enough memory for {name}, which needs {memory.describe()}; try a smaller num_ctx"
        ) from error


def build_model(
    source: ModelSource,
    placement: WeightPlacement,
    progress: LoadProgress | None = None,
    adapters: LoraAdapters | None = None,
) -> LanguageModel | Encoder:
    """The model of a source with its weights in place, every tensor used. Raises
    ModelLoadFailed, and what progress raises."""
    build = model_class(source.config.model_type)
    weights = WeightLoader(
        source.tensors, placement, source.config.quantization, progress, adapters
    )
    try:
        model: LanguageModel | Encoder = build(source.config, weights)
    except ConvertError as error:
        raise ModelLoadFailed(f"the model's config is invalid: {error}") from error
    weights.check_all_used()
    return model


def _is_shortage(error: Exception) -> bool:
    """Whether memory was short. On a CPU torch says so in the text of a plain RuntimeError."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(
        error
    )


def _embedder(plan: LoadPlan, header: GgufHeader, loaded: LoadedModel) -> TorchEmbeddingBackend:
    model = loaded.model
    if plan.ranking or not isinstance(model, Encoder):
        what = "scores pairs of texts" if plan.ranking else "is not an encoder"
        raise ModelLoadFailed(
            f"{header.path.name} {what}: the backend torch computes the embeddings of encoders"
            " only. Use the backend llamacpp"
        )
    max_tokens = min(loaded.context, model.max_tokens)
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
        loaded.adapters.load(path, Path(path))
    loaded.adapters.act_everywhere(plan.adapters)
    return TorchEmbeddingBackend(model, capacity, pooling_of(header), loaded.memory.device)


def create_executor(plan: LoadPlan, loaded: LoadedModel) -> Executor:
    """A model with its cache, as memory plans it. Raises ModelLoadFailed for one that only reads,
    and what torch raises when memory is short."""
    model, memory, layout = loaded.model, loaded.memory, loaded.ranks.layout
    if isinstance(model, Encoder):
        raise ModelLoadFailed(
            f"the model {Path(plan.path).name} is an encoder: it supports embeddings, not text "
            "generation"
        )
    shape = layout.local(loaded.config.shape)
    caches = create_caches(
        shape.layers,
        (memory.blocks, memory.block_size, shape.heads_kv, shape.head),
        memory.cache_dtype,
        memory.device,
    )
    if layout.ranks > 1:
        return RankExecutor(
            model, caches, memory.block_size, memory.device, loaded.ranks, loaded.adapters
        )
    size = memory.block_size
    geometry = CacheGeometry(size, plan.max_sequences, -(-loaded.context // size))
    return LocalExecutor(model, caches, geometry, memory.device, loaded.adapters)


def generator(plan: LoadPlan, loaded: LoadedModel, followers: Followers | None = None) -> Backend:
    """A model with its cache and what samples from it. followers: those that compute the rest of
    it. Raises as create_executor."""
    executor, memory, context = create_executor(plan, loaded), loaded.memory, loaded.context
    if followers is not None:
        executor = LeadingExecutor(executor, followers)
    capacity = Capacity(
        pool_tokens=max(plan.pool_tokens, context),
        max_sequences=plan.max_sequences,
        context_length=context,
        batch_tokens=plan.batch_tokens,
        vocabulary=loaded.config.shape.vocabulary,
        block_size=1,
        partial_share=True,
        can_save=followers is None,  # the other processes' part of a sequence stays with them
        score_tokens=MAX_SCORE_TOKENS,
        draft_tokens=MAX_SCORE_TOKENS if plan.draft_tokens else 0,
        hidden_states=True,
        input_width=loaded.config.shape.hidden,
    )
    pool = BlockPool(memory.blocks, memory.block_size, plan.max_sequences, context)
    on_device = torch.device(memory.device).type == "cuda"
    backend = TorchBackend(executor, capacity, pool, on_device=on_device)
    # Which tokens a step with drafts gives is known once it was read: the next one has to wait.
    # So has one whose tokens the other processes have to be told.
    waits = plan.draft_tokens or followers is not None
    return backend if waits else launch_ahead(backend)
