"""What a load takes, part by part, and how a size is written for people.

Upper estimates, computed before anything is loaded. Sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.models.model_shape import ModelShape
from runner.replies import DeviceEntry

PROCESS_BYTES = 160 << 20  # interpreter, libraries and a large vocabulary: an upper estimate
TORCH_PROCESS_BYTES = 160 << 20  # its libraries: what a process with ember takes more with them


@dataclass(frozen=True, slots=True)
class DeviceBytes:
    """What of a load lies on a device. key: equal for two names of the same one. shared: it is
    memory of the machine."""

    name: str
    key: str
    size_bytes: int
    shared: bool = False


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What a load takes. devices: the part of the sum that lies on each; swap_bytes comes on top:
    memory that the copies of finished sequences may grow to."""

    weights_bytes: int
    cache_bytes: int
    compute_bytes: int
    devices: tuple[DeviceBytes, ...] = ()
    swap_bytes: int = 0

    @property
    def gpu_bytes(self) -> int:
        """What lies on devices."""
        return sum(device.size_bytes for device in self.devices)

    @property
    def total_bytes(self) -> int:
        """Everything that the model needs, wherever it lies."""
        return self.weights_bytes + self.cache_bytes + self.compute_bytes

    @property
    def host_bytes(self) -> int:
        """The part in the machine's own memory, with the swap."""
        apart = sum(device.size_bytes for device in self.devices if not device.shared)
        return self.total_bytes - apart + self.swap_bytes

    @property
    def parts(self) -> str:
        """The parts in words."""
        weights, cache = gib(self.weights_bytes), gib(self.cache_bytes)
        return f"weights {weights} + cache {cache} + compute {gib(self.compute_bytes)}"

    def on_devices(self, devices: Sequence[tuple[str, str]]) -> MemoryEstimate:
        """The estimate when all layers lie in equal parts on devices, each by name and key, with a
        process for each."""
        there = self.total_bytes - len(devices) * PROCESS_BYTES
        size = there // max(1, len(devices))
        return replace(self, devices=tuple(DeviceBytes(*names, size) for names in devices))

    def device_entries(self) -> list[DeviceEntry]:
        """What lies on each device, as answers tell it."""
        return [
            {"name": device.name, "size": device.size_bytes, "shared": device.shared}
            for device in self.devices
        ]

    def describe(self) -> str:
        """The estimate in one line, for the log."""
        parts = [f"{gib(device.size_bytes)} on {device.name}" for device in self.devices]
        where = ", ".join(parts) if len(parts) > 1 else f"{gib(self.gpu_bytes)} of it on GPUs"
        return f"at most {gib(self.total_bytes)} ({self.parts}), {where}"


def compute_bytes(shape: ModelShape, batch: int, pool: int, flash_attention: bool | None) -> int:
    """An upper estimate of the buffers of one step: logits, hidden and feed-forward rows and the
    attention mask; without flash attention also the scores of every head."""
    row = shape.vocabulary + 6 * shape.embedding_length + 3 * shape.feed_forward_length + pool
    if flash_attention is False:
        row += shape.heads * pool
    own = 4 * batch * row + PROCESS_BYTES + shape.work_bytes
    if shape.projector is not None:
        own += shape.projector.compute_bytes(flash_attention)
    if shape.draft is None:
        return own
    return own + compute_bytes(shape.draft, batch, pool, flash_attention) - PROCESS_BYTES


def gib(size_bytes: int) -> str:
    """A size for people."""
    if size_bytes < 1 << 30:
        return f"{size_bytes / (1 << 20):.0f} MiB"
    return f"{size_bytes / (1 << 30):.1f} GiB"
