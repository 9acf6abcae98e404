"""The types that a cache of keys and values may have, and the memory they take.

One table for the parameter kv_cache_type, the setting of that name, and the memory plan.
"""

from __future__ import annotations

from typing import Final

# Bytes of one value, by what kv_cache_type may say: a q8_0 block is 34 bytes for 32 values.
CACHE_TYPES: Final[dict[str, float]] = {
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "fp8": 1.0,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "iq4_nl": 18 / 32,
    "q4_0": 18 / 32,
}
TORCH_ONLY: Final = ("fp8",)
TORCH_CACHE_TYPES: Final = {"q8_0": "int8", "fp8": "fp8"}  # what torch takes in their place
TORCH_CPU_CACHE_TYPE: Final = "f32"  # and in place of any other
TORCH_GPU_CACHE_TYPE: Final = "bf16"
_TORCH_BYTES: Final = {"f32": 4.0, "bf16": 2.0, "int8": 1.0, "fp8": 1.0}
_SCALE_BYTES: Final = 4  # of the keys or values of one head, in int8 and fp8


def torch_cache_type(cache_type: str, *, gpu: bool = False) -> str:
    """The type that the backend torch gives the cache for a value of kv_cache_type."""
    plain = TORCH_GPU_CACHE_TYPE if gpu else TORCH_CPU_CACHE_TYPE
    return TORCH_CACHE_TYPES.get(cache_type, plain)


def cache_bytes(cache_type: str, heads: int, head_values: int) -> float:
    """Memory of one token's keys and values in heads of head_values values together."""
    scales = 2 * _SCALE_BYTES if cache_type in TORCH_CACHE_TYPES.values() else 0
    value = CACHE_TYPES.get(cache_type) or _TORCH_BYTES[cache_type]
    return heads * (head_values * value + scales)
