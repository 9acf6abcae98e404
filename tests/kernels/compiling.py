"""Compiles kernels for a GPU that is not there: `with compiling() as made`, then call operations.

Inside, a launch on CPU tensors compiles the kernel for an H200 (compute capability 9.0) down to
machine code and runs nothing; made lists what was compiled. To be used in a process of its own,
in which Triton's interpreter was not chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

H200 = GPUTarget("cuda", 90, 32)


class _NoDevice:
    """As much of a driver as a compilation asks for."""

    def get_current_target(self) -> GPUTarget:
        return H200

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@contextmanager
def compiling(once: bool = False) -> Iterator[list[Any]]:
    """Launches compile only, while this lasts; once: each kernel at its first launch only."""
    made: list[Any] = []
    seen: set[Any] = set()
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if once and self in seen:
            return None
        seen.add(self)
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        made.append(kernel)
        return kernel

    triton.runtime.driver.set_active(_NoDevice())
    JITFunction.run = compile_only
    try:
        yield made
    finally:
        JITFunction.run = run
