"""What a model takes, told without loading it: bits a weight, memory at its context.

Knows the memory plan's estimates, not what is free now.
"""

from __future__ import annotations

from dataclasses import dataclass

from modelfile.cache_types import torch_cache_type
from modelfile.errors import ModelfileError
from modelfile.parameters import PARAMETERS, validate_all
from registry.bundle import Bundle
from runner.errors import ModelInvalid
from runner.models.load_request import load_request
from runner.models.memory_estimate import compute_bytes
from runner.models.memory_plan import cache_size, context_length
from runner.models.model_files import runs_on_torch
from runner.models.model_shape import model_shape
from runner.settings import Settings


@dataclass(frozen=True, slots=True)
class MemoryRequirement:
    """The least memory with which one conversation can fill the context."""

    context_length: int
    weights_bytes: int
    cache_bytes: int
    compute_bytes: int

    @property
    def total_bytes(self) -> int:
        """The sum. Loading may take more: a cache for several conversations at once."""
        return self.weights_bytes + self.cache_bytes + self.compute_bytes


def memory_requirement(bundle: Bundle, settings: Settings) -> MemoryRequirement | None:
    """At the context of the bundle's parameters, else of the settings; None when the model file
    or a parameter does not tell enough to load it."""
    try:
        request = load_request(validate_all(bundle.parameters), {}, settings)
        shape = model_shape(bundle, request.backend, request.quantize)
    except (ModelInvalid, ModelfileError):
        return None
    context, cache_type = context_length(shape, request), request.kv_cache_type
    torch = runs_on_torch(bundle, request.backend)
    if torch:
        cache_type = torch_cache_type(cache_type)
    cache = cache_size(shape, request, cache_type, windows=not torch, growing=True)
    batch = request.num_batch or PARAMETERS["num_batch"].default
    return MemoryRequirement(
        context,
        shape.all_weights_bytes,
        cache.size_bytes(context),
        compute_bytes(shape, batch, context, request.flash_attention),
    )


def bits_per_weight(bundle: Bundle) -> float | None:
    """Bits of a parameter over all tensors; None for a file without tensors."""
    count = bundle.header.parameter_count
    return 8 * bundle.header.tensors_size_bytes / count if count else None
