"""Where a model goes and what it takes there, told before anything is loaded.

The daemon has planned how many tokens the cache holds (runner/models/memory_plan.py); this module
turns that into blocks and bytes of this backend and refuses what the device cannot hold. Knows
sizes, no tensors' values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kernels.native.linear import torch_kernels
from runner.backends.torch.attention.paged import SCALED_DTYPES
from runner.backends.torch.config import LOAD_QUANTIZATIONS, ModelConfig
from runner.backends.torch.parallel.rank_layout import ALONE, RankLayout
from runner.errors import ModelLoadFailed
from runner.types import LoadPlan

BLOCK_SIZE = {"cpu": 16, "cuda": 64}  # tokens; small ones waste less, large ones launch fewer reads
SPARE_BLOCKS_PER_SEQUENCE = (
    2  # of each sequence: its last one is not full, and one it shared half of
)
RESERVE_BYTES = 512 << 20  # of a GPU, for CUDA's context and the libraries' workspaces
# Of the cache, by LoadPlan.kv_cache_type; any other is the computation's
_CACHE_DTYPES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class InPlaceWeights:
    """Weights of a file that a CPU's own kernels multiply as they lie there. maps: how many of them
    the load plan's quantize is for."""

    elements: int = 0
    size_bytes: int = 0
    maps: int = 0


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """How many weights a model has, the bytes they take in its file, where quantized tells that
    they are packed, and those of them that need not be unpacked on a CPU."""

    elements: int
    size_bytes: int
    quantized: bool
    in_place: InPlaceWeights = InPlaceWeights()


@dataclass(frozen=True, slots=True)
class TorchMemoryPlan:
    """packed, narrow, native: see weights.WeightPlacement."""

    device: str
    dtype: Any
    cache_dtype: Any
    block_size: int
    blocks: int
    block_bytes: int
    weights_bytes: int
    step_bytes: int
    packed: bool
    narrow: bool
    native: bool

    @property
    def cache_bytes(self) -> int:
        """The block pool."""
        return self.blocks * self.block_bytes

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.weights_bytes + self.cache_bytes + self.step_bytes

    def describe(self) -> str:
        """The plan in one line, for the log."""
        parts = (
            f"weights {_mib(self.weights_bytes)}",
            f"cache {_mib(self.cache_bytes)} ({self.blocks} blocks of {self.block_size} tokens)",
            f"step {_mib(self.step_bytes)}",
        )
        names = (str(self.dtype), str(self.cache_dtype))
        kind, cached = (name.removeprefix("torch.") for name in names)
        kind = kind if kind == cached else f"{kind}, its cache in {cached}"
        return f"{_mib(self.total_bytes)} on {self.device} in {kind}: {' + '.join(parts)}"


def device_for(plan: LoadPlan, rank: int = 0) -> str:
    """ "cuda" where there is one and the plan uses it, with its number where the plan or the rank
    says which, else "cpu"."""
    if plan.gpu_layers == 0 or not torch.cuda.is_available():
        return "cpu"
    if plan.devices:
        return f"cuda:{plan.devices[rank]}"
    return f"cuda:{rank}" if plan.ranks > 1 else "cuda"


def dtype_for(config: ModelConfig, device: str) -> Any:
    """The type that computation runs in: the checkpoint's own, bfloat16 where it names none; on a
    CPU float32, unless it multiplies the checkpoint's bfloat16 itself."""
    values = config.values.values
    name = values.get("dtype") or values.get("torch_dtype")
    own = _DTYPES.get(str(name).removeprefix("torch."))
    if device != "cpu":
        return own or torch.bfloat16
    return own if own is torch.bfloat16 and supports_bfloat16() else torch.float32


def plan_memory(
    config: ModelConfig,
    plan: LoadPlan,
    stored: StoredWeights,
    layout: RankLayout = ALONE,
) -> TorchMemoryPlan:
    """What the model takes, or its part on this rank of layout, which has the stored weights.
    Raises ModelLoadFailed when the device has less."""
    device = device_for(plan, layout.rank)
    native = device == "cpu" and plan.native_kernels and torch_kernels() is not None
    kept = stored.in_place if native else InPlaceWeights()
    dtype, packed = dtype_for(config, device), stored.quantized and device != "cpu"
    narrow = stored.quantized and dtype is torch.float32 and supports_bfloat16()
    shape, width = layout.local(config.shape), dtype.itemsize
    size = BLOCK_SIZE[torch.device(device).type]
    context = min(plan.context_length, config.context_length)
    blocks = (
        -(-max(plan.pool_tokens, context) // size) + SPARE_BLOCKS_PER_SEQUENCE * plan.max_sequences
    )
    cache_dtype = _CACHE_DTYPES.get(plan.kv_cache_type, dtype)
    token = 2 * shape.layers * shape.keys * cache_dtype.itemsize
    if cache_dtype in SCALED_DTYPES:
        token += 2 * shape.layers * shape.heads_kv * torch.float32.itemsize
    row = shape.vocabulary + 6 * shape.hidden + 3 * shape.feed_forward
    unpacked = min(kept.size_bytes, kept.elements * width) + _bytes_unpacked(
        config, stored.elements - kept.elements, width, narrow
    )
    if plan.quantize is not None:
        bits = LOAD_QUANTIZATIONS[plan.quantize].bits_per_weight
        maps = stored.in_place.maps
        unpacked = int(maps * bits / 8) + (stored.elements - maps) * width
    result = TorchMemoryPlan(
        device=device,
        dtype=dtype,
        cache_dtype=cache_dtype,
        block_size=size,
        blocks=blocks,
        block_bytes=size * token,
        weights_bytes=stored.size_bytes if packed else unpacked,
        step_bytes=4 * plan.batch_tokens * row,
        packed=packed,
        narrow=narrow,
        native=native,
    )
    _check_fits(result)
    return result


def _bytes_unpacked(config: ModelConfig, elements: int, width: int, narrow: bool) -> int:
    if not narrow:
        return elements * width
    shape = config.shape
    outer = min(elements, shape.vocabulary * shape.hidden * (1 if shape.tied else 2))
    return 2 * elements + 2 * outer


def _check_fits(plan: TorchMemoryPlan) -> None:
    if plan.device == "cpu":
        return  # the daemon has checked that, with the room that other models leave
    free, _ = torch.cuda.mem_get_info(plan.device)
    if plan.total_bytes + RESERVE_BYTES > free:
        raise ModelLoadFailed(
            f"the model needs {_mib(plan.total_bytes + RESERVE_BYTES)} of the GPU's memory,"
            f" but only {_mib(free)} is free; try a smaller num_ctx or num_parallel"
        )


def supports_bfloat16() -> bool:
    """Whether this CPU has instructions for it; without them float32 is faster."""
    found = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(found and found())


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.0f} MiB"
