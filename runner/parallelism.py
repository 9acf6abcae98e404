"""By how many processes a model may be computed together, by its numbers alone.

Used by the daemon before a process is started, and again where the model is loaded. Imports
nothing heavy.
"""

from __future__ import annotations

import sys


def check_split(
    *, heads: int, heads_kv: int, layers: int, experts: int, tensor: int, pipeline: int
) -> str | None:
    """Why a model of these numbers cannot be split by tensor and pipeline ranks, with what can be
    done; None: it can. experts: 0 for a model without them. How many ranks there may be at most
    whoever reads the parameters knows."""
    if tensor * pipeline == 1:
        return None
    system: str = sys.platform
    if system != "linux":
        return f"models are computed by several processes on Linux only, not on {system}"
    if heads % tensor:
        return (
            f"tensor_parallel={tensor} does not divide the model's {heads} attention heads; try"
            f" {_divisors(heads, tensor)}"
        )
    if heads_kv % tensor and tensor % heads_kv:
        return (
            f"tensor_parallel={tensor} neither divides the model's {heads_kv} key and value heads"
            f" nor is a multiple of them; try {_divisors(heads_kv, tensor)}"
        )
    if experts % tensor:
        return (
            f"tensor_parallel={tensor} does not divide the model's {experts} experts; try"
            f" {_divisors(experts, tensor)}"
        )
    if pipeline > layers:
        return f"pipeline_parallel={pipeline} is more than the model's {layers} layers"
    return None


def _divisors(number: int, most: int) -> str:
    """The divisors up to most, for people."""
    found = [str(each) for each in range(1, min(number, most) + 1) if number % each == 0]
    return " or ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else found[0]
