"""The memory plan of a model, computed from its header before anything is loaded.

Pure functions from facts to a LoadPlan and its price. Knows no process, store or HTTP; sizes in
bytes, lengths in tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.errors import InsufficientMemory
from runner.types import BackendName, LoadPlan

DEFAULT_CONTEXT = 4096
DRAFT_TOKENS = 4  # proposed by a draft model, where draft_num_predict says nothing
POOL_SHARE = 0.25  # of free memory, for the cache of several full contexts
MAX_POOL_TOKENS = 32_768
BATCH_TOKENS = 512
MAX_SEQUENCES = 256
IDLE_TOKENS = 64  # of finished sequences in a CPU's pool: 560 of them cost one row 7 % of its speed
MIN_SWAP_TOKENS = 2048  # a swap that holds less than these is no use
SWAP_SHARE = 0.25  # of the memory that the plan leaves free, for copies of finished sequences
MAX_SWAP_BYTES = 4 << 30
PROCESS_BYTES = 160 << 20  # interpreter, libraries and a large vocabulary: an upper estimate
TORCH_PROCESS_BYTES = 160 << 20  # its libraries: what a process with ember takes more with them
TORCH_SPARE_TOKENS = 32  # of each sequence: two blocks of its cache
TORCH_CACHE_TYPE = "f32"  # on a CPU, where it computes GGUF files in float32
TORCH_GPU_CACHE_TYPE = "bf16"
TORCH_CACHE_TYPES = {"q8_0": "int8", "fp8": "fp8"}  # what it has for the types that were asked for
SCALE_BYTES = 4  # of a key or value of one head in those
IMAGE_BYTES = 256 << 20  # of pictures being decoded, and of their embeddings, which are kept
GPU_HEADROOM_BYTES = 512 << 20  # CUDA context and library workspaces

# Bytes of one cached value: a q8_0 block is 34 bytes for 32 values, a q4_0 block 18.
CACHE_BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "iq4_nl": 18 / 32,
    "q4_0": 18 / 32,
    "int8": 1.0,
    "fp8": 1.0,
}


@dataclass(frozen=True, slots=True)
class ProjectorShape:
    """What the plan needs to know of what makes embeddings of images. patches: the most of a
    picture that are computed at once."""

    weights_bytes: int
    patches: int
    embedding_length: int
    feed_forward_length: int
    heads: int

    def compute_bytes(self, flash_attention: bool | None) -> int:
        """An upper estimate of its buffers, and the embeddings that are kept. Measured for the
        encoder of Gemma 3: 90 MiB, 1132 without flash attention."""
        attention = 6 * self.embedding_length
        if flash_attention is False:
            attention += self.heads * self.patches
        feed_forward = self.embedding_length + 3 * self.feed_forward_length
        return 4 * self.patches * max(attention, feed_forward) + IMAGE_BYTES


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the plan needs to know of a model. heads_kv: one number for each layer, 0 where a
    layer has no cache of keys and values. weights_bytes: with those of the adapters. draft: of the
    model that proposes tokens, loaded beside it; projector likewise. stored_bytes: what torch has
    of the weights on a GPU, where that is not weights_bytes."""

    weights_bytes: int
    context_length: int
    vocabulary: int
    embedding_length: int
    feed_forward_length: int
    heads: int
    heads_kv: tuple[int, ...]
    key_length: int
    value_length: int
    draft: ModelShape | None = None
    projector: ProjectorShape | None = None
    stored_bytes: int | None = None

    @property
    def all_weights_bytes(self) -> int:
        """With those of the draft model and the projector."""
        others = (self.draft, self.projector)
        return self.weights_bytes + sum(item.weights_bytes for item in others if item is not None)

    @property
    def layers(self) -> int:
        """The number of blocks."""
        return len(self.heads_kv)

    def cache_bytes_per_token(self, cache_type: str) -> float:
        """Keys and values of one token over all layers."""
        values = sum(self.heads_kv) * (self.key_length + self.value_length)
        own = values * CACHE_BYTES[cache_type]
        if cache_type in TORCH_CACHE_TYPES.values():
            own += 2 * sum(self.heads_kv) * SCALE_BYTES
        return own if self.draft is None else own + self.draft.cache_bytes_per_token(cache_type)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a request, the Modelfile and the settings ask for. None: not asked."""

    num_ctx: int | None = None  # of the request or the Modelfile
    default_context: int | None = None  # of the settings
    num_parallel: int = 16
    num_gpu: int | None = None
    num_thread: int | None = None
    num_batch: int | None = None
    cache_type: str = "f16"
    flash_attention: bool | None = None
    use_mmap: bool = True
    native_kernels: bool = True
    lora_scale: float = 1.0
    draft_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The memory a plan may use now. gpu_bytes: free memory of each usable device; empty when
    llama.cpp was built without one. torch_gpu_bytes: that of the one which torch uses."""

    free_bytes: int
    gpu_bytes: tuple[int, ...] = ()
    torch_gpu_bytes: tuple[int, ...] = ()

    def gpus(self, backend: BackendName) -> tuple[int, ...]:
        """Free memory of the devices that the backend can use."""
        return self.torch_gpu_bytes if backend == "torch" else self.gpu_bytes


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What a plan costs. gpu_bytes is the part of the sum that lies on devices; swap_bytes comes
    on top: memory that the copies of finished sequences may grow to."""

    weights_bytes: int
    cache_bytes: int
    compute_bytes: int
    gpu_bytes: int = 0
    swap_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Everything that the model needs, wherever it lies."""
        return self.weights_bytes + self.cache_bytes + self.compute_bytes

    @property
    def host_bytes(self) -> int:
        """The part in the machine's own memory, with the swap."""
        return self.total_bytes - self.gpu_bytes + self.swap_bytes

    def describe(self) -> str:
        """The plan in one line, for the log."""
        parts = f"weights {gib(self.weights_bytes)} + cache {gib(self.cache_bytes)}"
        return (
            f"at most {gib(self.total_bytes)} ({parts} + compute {gib(self.compute_bytes)}),"
            f" {gib(self.gpu_bytes)} of it on GPUs"
        )


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Which file the plan loads, and how."""

    path: str
    backend: BackendName
    embedding: bool = False
    ranking: bool = False
    chat_template: str | None = None
    adapters: tuple[str, ...] = ()
    draft: str | None = None
    projector: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """A plan and its price."""

    plan: LoadPlan
    price: MemoryEstimate


def context_length(shape: ModelShape, wishes: Wishes) -> int:
    """The longest sequence: the request's or Modelfile's wish, else the settings', else the
    model's own up to DEFAULT_CONTEXT; never more than the model was trained for."""
    wish = wishes.num_ctx or wishes.default_context or DEFAULT_CONTEXT
    return max(1, min(wish, shape.context_length))


def torch_cache_type(wish: str, plain: str = TORCH_CACHE_TYPE) -> str:
    """The type that the backend torch gives the cache for the one that was asked for. plain: the
    one in which it computes."""
    return TORCH_CACHE_TYPES.get(wish, plain)


def pool_tokens(context: int, wishes: Wishes, bytes_per_token: float, free_bytes: int) -> int:
    """Tokens of cache over all sequences. Every request at once could fill its context; that is
    affordable only up to POOL_SHARE of free memory and POOL_CAP_TOKENS, past which requests
    share, and the scheduler preempts. Never less than one full context."""
    share = free_bytes * POOL_SHARE
    affordable = int(share / bytes_per_token) if bytes_per_token else MAX_POOL_TOKENS
    wanted = min(max(1, wishes.num_parallel) * context, MAX_POOL_TOKENS)
    return max(context, min(wanted, affordable))


def max_sequences(num_parallel: int) -> int:
    """Sequence ids: one for each running request, and ids that keep the prefixes of ended
    ones."""
    return min(MAX_SEQUENCES, max(1, num_parallel) * 2 + 8)


def compute_bytes(shape: ModelShape, batch: int, pool: int, flash_attention: bool | None) -> int:
    """An upper estimate of the buffers of one step: logits, hidden and feed-forward rows and the
    attention mask; without flash attention also the scores of every head."""
    row = shape.vocabulary + 6 * shape.embedding_length + 3 * shape.feed_forward_length + pool
    if flash_attention is False:
        row += shape.heads * pool
    own = 4 * batch * row + PROCESS_BYTES
    if shape.projector is not None:
        own += shape.projector.compute_bytes(flash_attention)
    if shape.draft is None:
        return own
    return own + compute_bytes(shape.draft, batch, pool, flash_attention) - PROCESS_BYTES


def plan_memory(
    source: ModelFiles, shape: ModelShape, wishes: Wishes, room: MemoryBudget
) -> MemoryPlan:
    """The plan for loading source into room. Raises InsufficientMemory with the numbers."""
    placement = _propose(source, shape, wishes, room)
    left = room.free_bytes - placement.price.host_bytes
    if left < 0:
        raise _refusal(placement.price, max(0, room.free_bytes))
    return _with_swap(placement, shape, left)


def _propose(
    source: ModelFiles, shape: ModelShape, wishes: Wishes, room: MemoryBudget
) -> MemoryPlan:
    if source.backend == "torch" and room.torch_gpu_bytes:
        # There weights stay as they are stored; on a CPU they are floats.
        packed = shape.weights_bytes if shape.stored_bytes is None else shape.stored_bytes
        stored = replace(shape, weights_bytes=packed)
        found = _proposed(source, stored, wishes, room, TORCH_GPU_CACHE_TYPE)
        if found.plan.gpu_layers > shape.layers:
            return found
        room = replace(room, torch_gpu_bytes=())
    return _proposed(source, shape, wishes, room, TORCH_CACHE_TYPE)


def _proposed(
    source: ModelFiles, shape: ModelShape, wishes: Wishes, room: MemoryBudget, torch_cache: str
) -> MemoryPlan:
    """torch_cache: the type of the cache on torch, where no other is asked for."""
    drafted = _draft_tokens(source, wishes)
    if drafted == 0:
        source, shape = replace(source, draft=None), replace(shape, draft=None)
    context = context_length(shape, wishes)
    cache_type = wishes.cache_type
    if source.backend == "torch":
        cache_type = torch_cache_type(cache_type, torch_cache)
    per_token = shape.cache_bytes_per_token(cache_type)
    gpus = room.gpus(source.backend)
    after_weights = max(0, room.free_bytes + sum(gpus) - shape.all_weights_bytes)
    pool = pool_tokens(context, wishes, per_token, after_weights)
    batch = min(max(1, wishes.num_batch or BATCH_TOKENS), pool)
    price = MemoryEstimate(
        weights_bytes=shape.all_weights_bytes,
        cache_bytes=int(per_token * pool),
        compute_bytes=compute_bytes(shape, batch, pool, wishes.flash_attention),
    )
    if source.backend == "torch":
        price = _for_torch(price, per_token, wishes)
    layers = gpu_layers(shape, price, wishes.num_gpu, gpus)
    if source.backend == "torch" and layers <= shape.layers:
        layers = 0  # it puts a model on one device as a whole
    plan = LoadPlan(
        path=source.path,
        backend=source.backend,
        context_length=context,
        pool_tokens=pool,
        max_sequences=max_sequences(wishes.num_parallel),
        max_running=max(1, wishes.num_parallel),
        batch_tokens=batch,
        threads=wishes.num_thread,
        gpu_layers=layers,
        kv_cache_type=cache_type,
        flash_attention=wishes.flash_attention,
        use_mmap=wishes.use_mmap,
        native_kernels=wishes.native_kernels,
        embedding=source.embedding,
        ranking=source.ranking,
        chat_template=source.chat_template,
        adapters=tuple((path, wishes.lora_scale) for path in source.adapters),
        draft_tokens=drafted,
        draft_path=source.draft,
        projector=source.projector,
        sequence_tokens=_sequence_tokens(source, shape, pool),
    )
    return MemoryPlan(plan, _on_gpu(price, shape.layers, layers))


def _sequence_tokens(source: ModelFiles, shape: ModelShape, pool: int) -> int | None:
    """How long a sequence may become whose request asks for a longer context: one alone may fill
    the pool. None: no longer than the others, where buffers are made for the context."""
    if source.embedding or source.backend == "torch":
        return None
    return min(pool, shape.context_length)


def _draft_tokens(source: ModelFiles, wishes: Wishes) -> int:
    if source.embedding:
        return 0
    if wishes.draft_tokens is None:
        return 0 if source.draft is None else DRAFT_TOKENS
    return wishes.draft_tokens


def _for_torch(price: MemoryEstimate, bytes_per_token: float, wishes: Wishes) -> MemoryEstimate:
    """With its larger libraries, and the blocks of the cache that sequences leave half empty."""
    spare = TORCH_SPARE_TOKENS * max_sequences(wishes.num_parallel)
    return replace(
        price,
        cache_bytes=price.cache_bytes + int(bytes_per_token * spare),
        compute_bytes=price.compute_bytes + TORCH_PROCESS_BYTES,
    )


def _idles_at_a_cost(plan: LoadPlan, shape: ModelShape) -> bool:
    """True when finished sequences in the pool slow the others down: every step attends over
    them too, which a GPU hardly notices and a model without attention does not do."""
    on_cpu = plan.backend == "llamacpp" and plan.gpu_layers == 0
    return on_cpu and not plan.embedding and any(shape.heads_kv)


def _with_swap(placement: MemoryPlan, shape: ModelShape, left: int) -> MemoryPlan:
    """Finished sequences wait outside the pool, in a share of the memory left, unless that holds
    too little: computing again costs more than attending."""
    plan, price = placement.plan, placement.price
    size = min(int(left * SWAP_SHARE), MAX_SWAP_BYTES)
    least = MIN_SWAP_TOKENS * shape.cache_bytes_per_token(plan.kv_cache_type)
    if size < least or not _idles_at_a_cost(plan, shape):
        return placement
    plan = replace(plan, idle_tokens=IDLE_TOKENS, swap_bytes=size)
    return MemoryPlan(plan, replace(price, swap_bytes=size))


def gpu_layers(
    shape: ModelShape, price: MemoryEstimate, num_gpu: int | None, gpu_bytes: Sequence[int]
) -> int:
    """How many layers go to the devices, counting the output layer as one more: as many as fit
    with their share of the cache, or num_gpu as it was asked for (0: none)."""
    every = shape.layers + 1
    if not gpu_bytes or num_gpu == 0:
        return 0
    if num_gpu is not None:
        return min(num_gpu, every)
    per_layer = (price.weights_bytes + price.cache_bytes) / every
    fitting = 0
    for free in gpu_bytes:
        usable = free - GPU_HEADROOM_BYTES - (price.compute_bytes - PROCESS_BYTES)
        fitting += int(max(0, usable) // max(1, per_layer))
    return min(fitting, every)


def _on_gpu(price: MemoryEstimate, layers: int, on_gpu: int) -> MemoryEstimate:
    share = on_gpu / (layers + 1)
    moved = int((price.weights_bytes + price.cache_bytes) * share)
    if on_gpu:
        moved += price.compute_bytes - PROCESS_BYTES
    return MemoryEstimate(price.weights_bytes, price.cache_bytes, price.compute_bytes, moved)


def gib(size_bytes: int) -> str:
    """A size for people."""
    if size_bytes < 1 << 30:
        return f"{size_bytes / (1 << 20):.0f} MiB"
    return f"{size_bytes / (1 << 30):.1f} GiB"


def _refusal(price: MemoryEstimate, available: int) -> InsufficientMemory:
    parts = f"weights {gib(price.weights_bytes)} + cache {gib(price.cache_bytes)}"
    return InsufficientMemory(
        f"needs {gib(price.host_bytes)} ({parts} + compute {gib(price.compute_bytes)}), "
        f"{gib(available)} are free; try a smaller num_ctx or quantization",
        needed_bytes=price.host_bytes,
        available_bytes=available,
    )
