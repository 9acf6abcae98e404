"""The memory that a plan may count on, given the settings and what other models hold.

Joins the facts of memory.py and the promises of resident models; decides nothing itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Sequence

from runner.models.memory_plan import MemoryBudget, Wishes
from runner.models.options import LoadRequest
from runner.models.resident import Resident
from runner.models.system_memory import available_bytes, gpu_memory
from runner.models.worker_process import worker_command, worker_environment
from runner.settings import Settings

log = logging.getLogger("hearth.models")

HEADROOM_BYTES = 256 << 20  # never planned: the daemon, page cache, the user's own programs
_PROBE_TIMEOUT_S = 60.0


class MemoryTracker:
    """Measures the room for one more model."""

    def __init__(self, settings: Settings, measure: Callable[[], int] = available_bytes) -> None:
        self._settings = settings
        self._measure = measure
        self._gpu_backends: frozenset[str] | None = None

    async def probe(self) -> None:
        """Find out once, in a child process, which backends can use a GPU."""
        if self._gpu_backends is None:
            self._gpu_backends = await _backends_with_gpu() if gpu_memory() else frozenset()

    def now(self, others: Iterable[Resident]) -> MemoryBudget:
        """The room while others stay."""
        held = list(others)
        free = self._measure() - HEADROOM_BYTES - sum(item.owed_bytes for item in held)
        limit = self._settings.memory_limit
        if limit is not None:
            free = min(free, limit - sum(item.placement.price.host_bytes for item in held))
        return self._room(max(0, free), self._gpu_bytes())

    def without(self, others: Sequence[Resident]) -> MemoryBudget:
        """The room if all others were gone."""
        counted = sum(item.placement.price.host_bytes - item.owed_bytes for item in others)
        free = self._measure() - HEADROOM_BYTES + counted
        limit = self._settings.memory_limit
        gpu = self._gpu_bytes()
        if gpu:
            gpu = (gpu[0] + sum(item.placement.price.gpu_bytes for item in others), *gpu[1:])
        return self._room(max(0, free if limit is None else min(free, limit)), gpu)

    def full(self, count: int) -> bool:
        """True when HEARTH_MAX_LOADED_MODELS allows no further model."""
        most = self._settings.max_loaded_models
        return most is not None and count >= most

    def wishes(self, options: LoadRequest) -> Wishes:
        """What the plan is asked for: the options over the settings."""
        settings = self._settings
        return Wishes(
            num_ctx=options.num_ctx,
            default_context=settings.context_length,
            num_parallel=options.num_parallel or settings.num_parallel,
            num_gpu=options.num_gpu,
            num_thread=options.num_thread or settings.num_threads,
            num_batch=options.num_batch,
            cache_type=options.kv_cache_type or settings.kv_cache_type,
            flash_attention=settings.flash_attention,
            use_mmap=True if options.use_mmap is None else options.use_mmap,
            native_kernels=settings.native_kernels,
            lora_scale=1.0 if options.lora_scale is None else options.lora_scale,
            draft_tokens=options.draft_tokens,
        )

    def _room(self, free_bytes: int, gpu_bytes: tuple[int, ...]) -> MemoryBudget:
        usable = self._gpu_backends or ()
        return MemoryBudget(
            free_bytes,
            gpu_bytes if "llamacpp" in usable else (),
            gpu_bytes[:1] if "torch" in usable else (),
        )

    def _gpu_bytes(self) -> tuple[int, ...]:
        if not self._gpu_backends:
            return ()
        return tuple(device.free_bytes for device in gpu_memory())


async def _backends_with_gpu() -> frozenset[str]:
    process = await asyncio.create_subprocess_exec(
        *worker_command("--probe"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=worker_environment(),
        cwd="/",
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _PROBE_TIMEOUT_S)
        facts = json.loads(output)
        found = {"llamacpp": facts["gpu_offload"], "torch": facts["torch_gpu"]}
        return frozenset(name for name, has in found.items() if has)
    except (TimeoutError, ValueError, KeyError, TypeError):
        log.warning("the backend's probe gave no answer; models stay on the CPU")
        if process.returncode is None:
            process.kill()
            await process.wait()
        return frozenset()
