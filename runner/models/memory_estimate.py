"""What a load takes, part by part, and how a size is written for people.

Upper estimates, computed before anything is loaded. Sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runner.models.model_shape import ModelShape

PROCESS_BYTES = 160 << 20  # interpreter, libraries and a large vocabulary: an upper estimate
TORCH_PROCESS_BYTES = 160 << 20  # its libraries: what a process with ember takes more with them


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What a load takes. gpu_bytes is the part of the sum that lies on devices; swap_bytes comes
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

    @property
    def parts(self) -> str:
        """The parts in words."""
        weights, cache = gib(self.weights_bytes), gib(self.cache_bytes)
        return f"weights {weights} + cache {cache} + compute {gib(self.compute_bytes)}"

    def with_gpu_layers(self, gpu_layers: int, layers: int, ranks: int = 1) -> MemoryEstimate:
        """The estimate when gpu_layers of a model's layers lie on devices, the output layer
        counted as one more. ranks: the processes that compute it."""
        if gpu_layers == 0:
            return self
        share = gpu_layers / (layers + 1)
        gpu_bytes = int((self.weights_bytes + self.cache_bytes) * share)
        return replace(self, gpu_bytes=gpu_bytes + self.compute_bytes - ranks * PROCESS_BYTES)

    def describe(self) -> str:
        """The estimate in one line, for the log."""
        return (
            f"at most {gib(self.total_bytes)} ({self.parts}), {gib(self.gpu_bytes)} of it on GPUs"
        )


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
