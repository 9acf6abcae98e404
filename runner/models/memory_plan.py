"""The memory plan of a model, computed from its shape before anything is loaded.

Pure functions from a LoadRequest and a MemoryBudget to a LoadPlan, which the worker gets, and its
MemoryEstimate, which stays with the daemon: it counts as taken for as long as the model is loaded.
Knows no process, store or HTTP; sizes in bytes, lengths in tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from modelfile.cache_types import torch_cache_type
from runner.errors import InsufficientMemory
from runner.models.cache_size import CacheSize, window_cells, window_sequences
from runner.models.device_plan import GPU_HEADROOM_BYTES, DevicePlan, plan_devices
from runner.models.device_split import check_devices, check_ranks, chosen_gpus
from runner.models.devices import Device
from runner.models.load_request import LoadRequest
from runner.models.memory_estimate import (
    PROCESS_BYTES,
    TORCH_PROCESS_BYTES,
    MemoryEstimate,
    compute_bytes,
    gib,
)
from runner.models.model_files import ModelFiles
from runner.models.model_shape import ModelShape
from runner.types import BackendName, LoadPlan

DEFAULT_CONTEXT = 4096
POOL_SHARE = 0.25  # of free memory, for the cache of several full contexts
MAX_POOL_TOKENS = 32_768
START_POOL_TOKENS = 8192  # of a cache that can grow: two contexts
BATCH_TOKENS = 512
MAX_SEQUENCES = 256
IDLE_TOKENS = 64  # of finished sequences in a CPU's pool: 560 of them cost one row 7 % of its speed
MIN_SWAP_TOKENS = 2048  # a swap that holds less than these is no use
SWAP_SHARE = 0.25  # of the memory that the plan leaves free, for copies of finished sequences
MAX_SWAP_BYTES = 4 << 30
TORCH_SPARE_TOKENS = 32  # of each sequence: two blocks of its cache


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The memory a plan may use now. devices: those that llama.cpp can use, in its order;
    torch_devices: those that torch can use, in its own."""

    free_bytes: int
    devices: tuple[Device, ...] = ()
    torch_devices: tuple[Device, ...] = ()

    def usable(self, backend: BackendName, request: LoadRequest) -> tuple[Device, ...]:
        """The devices that the backend may use for the request. Raises InvalidRequest when those
        that were asked for are not there."""
        if backend == "torch":
            return chosen_gpus(request, self.torch_devices)
        if backend != "llamacpp":
            return ()
        check_devices(request, self.devices)
        return self.devices


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How a model is loaded, and the memory that takes: of the cache, and step_token_bytes of a
    step's buffers for each token that the cache can hold. request: what was wanted; devices: that
    its backend could use."""

    load_plan: LoadPlan
    estimate: MemoryEstimate
    cache: CacheSize = field(default_factory=CacheSize)
    step_token_bytes: float = 0.0
    request: LoadRequest = field(default_factory=LoadRequest)
    devices: tuple[Device, ...] = ()

    def with_pool(self, pool_tokens: int) -> MemoryPlan:
        """The plan with a cache of another size."""
        size_bytes, now = self.cache.size_bytes, self.load_plan.pool_tokens
        step_bytes = int((pool_tokens - now) * self.step_token_bytes)
        estimate = replace(
            self.estimate,
            cache_bytes=self.estimate.cache_bytes + size_bytes(pool_tokens) - size_bytes(now),
            compute_bytes=self.estimate.compute_bytes + step_bytes,
        )
        load_plan = replace(self.load_plan, pool_tokens=pool_tokens)
        return replace(self, load_plan=load_plan, estimate=estimate)

    def grown(self, tokens: int, free_bytes: int) -> MemoryPlan | None:
        """The plan with a cache of tokens at least, and of twice as many as now if free_bytes of
        memory allow that: what it holds now is copied meanwhile. None: they do not, or it may not
        have so many."""
        pool = self.load_plan.pool_tokens
        free_bytes -= self.cache.size_bytes(pool)
        affordable = self.cache.affordable(pool, free_bytes, self.step_token_bytes)
        most = min(self.load_plan.max_pool_tokens or pool, affordable)
        return self.with_pool(min(most, max(tokens, 2 * pool))) if pool < tokens <= most else None


def context_length(shape: ModelShape, request: LoadRequest) -> int:
    """The most tokens of a sequence: as requested, else the model's own up to DEFAULT_CONTEXT;
    never more than the model was trained for."""
    return max(1, min(request.num_ctx or DEFAULT_CONTEXT, shape.context_length))


def pool_tokens(context: int, num_parallel: int, cache: CacheSize, free_bytes: int) -> int:
    """Tokens of cache over all sequences. Every request at once could fill its context; that is
    affordable only up to POOL_SHARE of free memory and MAX_POOL_TOKENS, past which requests
    share, and the scheduler preempts. Never less than one full context."""
    affordable = cache.affordable(0, free_bytes * POOL_SHARE)
    if not cache.size_bytes(MAX_POOL_TOKENS):
        affordable = MAX_POOL_TOKENS
    return max(context, min(_several_contexts(context, num_parallel), affordable))


def _several_contexts(context: int, num_parallel: int) -> int:
    return min(max(1, num_parallel) * context, MAX_POOL_TOKENS)


def max_sequences(num_parallel: int, *, windows: bool = False) -> int:
    """Sequence ids: one for each running request, and ids that keep the prefixes of ended
    ones. windows: layers have a window for each of them."""
    wanted = window_sequences(num_parallel) if windows else max(1, num_parallel) * 2 + 8
    return min(MAX_SEQUENCES, wanted)


def plan_memory(
    files: ModelFiles, shape: ModelShape, request: LoadRequest, budget: MemoryBudget
) -> MemoryPlan:
    """The plan for loading files within budget. Raises InsufficientMemory with the numbers,
    InvalidRequest for a model that cannot be split as it shall be."""
    check_ranks(files, shape, request)
    plan = replace(_propose(files, shape, request, budget), request=request)
    left = budget.free_bytes - plan.estimate.host_bytes
    if left < 0:
        raise _refusal(plan.estimate, max(0, budget.free_bytes))
    plan = _with_swap(plan, shape, left)
    return _with_growth(plan, shape, request, budget.free_bytes - plan.estimate.host_bytes)


def _propose(
    files: ModelFiles, shape: ModelShape, request: LoadRequest, budget: MemoryBudget
) -> MemoryPlan:
    if files.embedding:
        request = replace(request, draft_tokens=0)
    if request.draft_tokens == 0:
        files, shape = replace(files, draft=None), replace(shape, draft=None)
    if files.backend != "torch":
        return _plan(files, shape, request, budget, request.kv_cache_type)
    if budget.torch_devices:
        # There weights stay as they are stored; on a CPU they are floats.
        stored = shape.weights_bytes if shape.stored_bytes is None else shape.stored_bytes
        cache_type = torch_cache_type(request.kv_cache_type, gpu=True)
        plan = _plan(files, replace(shape, weights_bytes=stored), request, budget, cache_type)
        if plan.load_plan.gpu_layers > shape.layers:
            return plan
        request = replace(request, num_gpu=0, devices=())
    return _plan(files, shape, request, budget, torch_cache_type(request.kv_cache_type))


def _plan(
    files: ModelFiles,
    shape: ModelShape,
    request: LoadRequest,
    budget: MemoryBudget,
    cache_type: str,
) -> MemoryPlan:
    context, torch = context_length(shape, request), files.backend == "torch"
    gpus = budget.usable(files.backend, request)
    growing = _can_grow(files, gpus, request)
    cache = cache_size(shape, request, cache_type, windows=_has_windows(files), growing=growing)
    pool = pool_tokens(context, request.num_parallel, cache, _for_cache(shape, budget, gpus))
    if growing:
        pool = min(pool, max(context, START_POOL_TOKENS, shape.original_context + 1))
    batch = min(max(1, request.num_batch or BATCH_TOKENS), pool)
    step_bytes, step_token_bytes = _step_bytes(shape, request, batch, pool)
    estimate = MemoryEstimate(shape.all_weights_bytes, cache.size_bytes(pool), step_bytes)
    if torch:
        estimate, split = _placed_by_torch(shape, estimate, cache.token_bytes, request, gpus)
    else:
        by_cells = _by_cells(shape, cache, pool)
        split = plan_devices(by_cells, estimate, request, gpus, budget.free_bytes)
    load = LoadPlan(
        path=files.path,
        backend=files.backend,
        context_length=context,
        pool_tokens=pool,
        max_pool_tokens=pool if growing else None,
        max_sequences=max_sequences(request.num_parallel, windows=cache.window_cells > 0),
        max_running=max(1, request.num_parallel),
        batch_tokens=batch,
        threads=request.num_thread,
        gpu_layers=split.layers,
        kv_cache_type=cache_type,
        window_cache=cache.window_cells > 0,
        flash_attention=request.flash_attention,
        use_mmap=request.use_mmap,
        gpu_devices=tuple(device.name for device in split.devices),
        split_mode=split.mode,
        tensor_split=split.shares,
        cpu_moe_layers=split.cpu_moe_layers,
        use_mlock=request.use_mlock,
        numa=request.numa,
        rope_frequency_base=request.rope_frequency_base,
        rope_frequency_scale=request.rope_frequency_scale,
        native_kernels=request.native_kernels,
        embedding=files.embedding,
        ranking=files.ranking,
        adapters=tuple((path, request.lora_scale) for path in files.adapters),
        draft_tokens=request.draft_tokens,
        draft_path=files.draft,
        projector=files.projector,
        quantize=request.quantize if torch else None,
        step_limit_s=request.step_limit_s,
        tensor_parallel=request.tensor_parallel,
        pipeline_parallel=request.pipeline_parallel,
        devices=request.devices,
        # One sequence may fill the pool, but where buffers are made for the context
        sequence_tokens=None if files.embedding or torch else min(pool, shape.context_length),
    )
    return MemoryPlan(load, split.add_to(estimate), cache, step_token_bytes, request, gpus)


def cache_size(
    shape: ModelShape, request: LoadRequest, cache_type: str, *, windows: bool, growing: bool
) -> CacheSize:
    """Layers with an attention window hold that only where it is less for all sequences than what
    the cache may hold in the end. windows: the backend can do so. growing: the cache may become as
    long as the model's context."""
    every = shape.cache_bytes_per_token(cache_type) * _copies(shape, request)
    in_windows = shape.window_bytes_per_token(cache_type)
    if not (windows and in_windows):
        return CacheSize(every)
    context = context_length(shape, request)
    most = max(
        shape.context_length if growing else context,
        _several_contexts(context, request.num_parallel),
    )
    batch = max(1, request.num_batch or BATCH_TOKENS)
    cells = window_cells(shape.window, request.num_parallel, batch)
    return CacheSize(every) if cells >= most else CacheSize(every - in_windows, in_windows, cells)


def _has_windows(files: ModelFiles) -> bool:
    """Whether what computes them can let layers hold their attention window only."""
    return files.backend == "llamacpp" and not files.embedding


def _step_bytes(shape: ModelShape, request: LoadRequest, batch: int, pool: int) -> tuple[int, int]:
    """What a step's buffers take, and how much more with each token that the cache can hold."""
    now, later = (
        compute_bytes(shape, batch, tokens, request.flash_attention) for tokens in (pool, pool + 1)
    )
    return now, later - now


def _by_cells(shape: ModelShape, cache: CacheSize, pool: int) -> ModelShape:
    """The shape with as many heads in each layer as its part of the cache is large."""
    if not cache.window_cells:
        return shape
    held = (pool, min(pool, cache.window_cells))
    layers = zip(shape.heads_kv, shape.window_layers, strict=True)
    return replace(shape, heads_kv=tuple(heads * held[window] for heads, window in layers))


def _for_cache(shape: ModelShape, budget: MemoryBudget, gpus: Sequence[Device]) -> int:
    """What the weights leave of the machine's memory and of devices with memory of their own."""
    apart = sum(device.free_bytes for device in gpus if not device.shared)
    return max(0, budget.free_bytes + apart - shape.all_weights_bytes)


def _placed_by_torch(
    shape: ModelShape,
    estimate: MemoryEstimate,
    bytes_per_token: float,
    request: LoadRequest,
    gpus: Sequence[Device],
) -> tuple[MemoryEstimate, DevicePlan]:
    """torch does not spread layers over devices: each rank's part has to fit on its own."""
    estimate = _for_torch(estimate, bytes_per_token, request)
    every, free_bytes = shape.layers + 1, min((gpu.free_bytes for gpu in gpus), default=0)
    part_bytes = estimate.total_bytes // request.ranks - PROCESS_BYTES + GPU_HEADROOM_BYTES
    wanted = every if request.num_gpu is None else request.num_gpu
    fits = part_bytes <= free_bytes or request.num_gpu is not None
    if not gpus or wanted < every or not fits:
        return estimate, DevicePlan()
    placed = estimate.on_devices([(device.name, device.key) for device in gpus])
    return placed, DevicePlan(layers=every)


def _for_torch(
    estimate: MemoryEstimate, bytes_per_token: float, request: LoadRequest
) -> MemoryEstimate:
    """With its larger libraries, and the blocks of the cache that sequences leave half empty. Each
    process has buffers of its own."""
    spare = TORCH_SPARE_TOKENS * max_sequences(request.num_parallel)
    return replace(
        estimate,
        cache_bytes=estimate.cache_bytes + int(bytes_per_token * spare),
        compute_bytes=request.ranks * (estimate.compute_bytes + TORCH_PROCESS_BYTES),
    )


def _copies(shape: ModelShape, request: LoadRequest) -> float:
    """How often the cache is there: where there are fewer heads of keys than processes that share a
    layer, several have the same one."""
    return max(1.0, request.tensor_parallel / max(1, *shape.heads_kv))


def _can_grow(files: ModelFiles, gpus: Sequence[Device], request: LoadRequest) -> bool:
    """Whether the cache can be made larger while the model is loaded. One on GPUs has from the
    start what it may have: how many layers go there depends on it."""
    on_cpu = not gpus or request.num_gpu == 0
    return files.backend == "llamacpp" and not files.embedding and on_cpu


def _with_growth(
    plan: MemoryPlan, shape: ModelShape, request: LoadRequest, left: int
) -> MemoryPlan:
    """With what the cache may grow to: the model's longest context, or several of those asked for,
    as far as the memory left allows now, when half of it is copied into the whole."""
    load_plan = plan.load_plan
    pool = load_plan.pool_tokens
    if load_plan.max_pool_tokens is None:
        return plan
    several = min(max(1, request.num_parallel) * load_plan.context_length, MAX_POOL_TOKENS)
    wanted = max(shape.context_length, several)
    if pool <= shape.original_context:  # beyond it llama.cpp rotates keys otherwise
        wanted = min(wanted, shape.original_context)
    half_bytes = plan.cache.size_bytes(pool) / 2
    with_copy = plan.cache.times(1.5)
    affordable = with_copy.affordable(pool, left - half_bytes, plan.step_token_bytes)
    most = max(pool, min(wanted, affordable))
    return replace(
        plan,
        load_plan=replace(
            load_plan, max_pool_tokens=most, sequence_tokens=min(most, shape.context_length)
        ),
    )


def _idle_tokens_are_slow(plan: LoadPlan, shape: ModelShape) -> bool:
    """True when finished sequences in the pool slow the others down: every step attends over
    them too, which a GPU hardly notices and a model without attention does not do."""
    on_cpu = plan.backend == "llamacpp" and plan.gpu_layers == 0
    return on_cpu and not plan.embedding and any(shape.heads_kv)


def _with_swap(plan: MemoryPlan, shape: ModelShape, left: int) -> MemoryPlan:
    """Finished sequences wait outside the pool, in a share of the memory left, unless that holds
    too little: computing again costs more than attending."""
    load_plan, estimate = plan.load_plan, plan.estimate
    size = min(int(left * SWAP_SHARE), MAX_SWAP_BYTES)
    min_size = MIN_SWAP_TOKENS * shape.cache_bytes_per_token(load_plan.kv_cache_type)
    if size < min_size or not _idle_tokens_are_slow(load_plan, shape):
        return plan
    load_plan = replace(load_plan, idle_tokens=IDLE_TOKENS, swap_bytes=size)
    return replace(plan, load_plan=load_plan, estimate=replace(estimate, swap_bytes=size))


def _refusal(estimate: MemoryEstimate, available: int) -> InsufficientMemory:
    return InsufficientMemory(
        f"needs {gib(estimate.host_bytes)} ({estimate.parts}), but only {gib(available)} is free;"
        " try a smaller num_ctx or quantization",
        needed_bytes=estimate.host_bytes,
        available_bytes=available,
    )
