"""What was measured beside what was wanted, and the machine that it was measured on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_COPY_BYTES, _SIDE = 1 << 30, 8192
_SMALL = 50  # times smaller, to see that it runs


@dataclass(frozen=True, slots=True)
class Target:
    """One line of the list: its name, and the share of the machine's own figure that is wanted."""

    name: str
    wanted: float
    of: str

    def line(self, found: float | None, figure: str) -> str:
        """found: the share, None where nothing was measured."""
        share = "not measured" if found is None else f"{found:12.2f}"
        return f"{self.name:<44}{share:>12} of {self.of:<16} wanted {self.wanted:g}  {figure}"


@dataclass(frozen=True, slots=True)
class Machine:
    """A device and what it gives in a plain copy (bytes read and written a second) and in a plain
    product in bfloat16 (additions and multiplications a second). small: sizes that only show that
    it runs."""

    device: str
    small: bool
    copy: float
    matrix: float

    def describe(self) -> str:
        """One line for the head of the table."""
        name = torch.cuda.get_device_name() if self.device == "cuda" else "CPU"
        return (
            f"torch {torch.__version__} on {name}: copy {self.copy / 1e9:.1f} GB/s, bf16 matmul"
            f" {self.matrix / 1e12:.2f} TFLOP/s"
        )


def measure_machine(device: str, *, small: bool) -> Machine:
    """Copy bandwidth and matrix rate of the device."""
    size, side = (_COPY_BYTES // _SMALL, _SIDE // _SMALL) if small else (_COPY_BYTES, _SIDE)
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = 2 * size / seconds(lambda: target.copy_(source), device)
    square = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    return Machine(device, small, copied, 2.0 * side**3 / seconds(lambda: square @ square, device))


def seconds(operation: Callable[[], object], device: str, runs: int = 10) -> float:
    """The median time of a run, after two that are not counted."""
    times = []
    for _ in range(runs + 2):
        wait(device)
        start_s = time.perf_counter()
        operation()
        wait(device)
        times.append(time.perf_counter() - start_s)
    return statistics.median(times[2:])


def wait(device: str) -> None:
    """Until all that was launched is done."""
    if device == "cuda":
        torch.cuda.synchronize()
