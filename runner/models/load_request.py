"""What is wanted of a load: the options of a request over the Modelfile's parameters over the
settings.

Knows the names of all three. What a load gets of it the memory plan decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modelfile.load_quantization import OFF
from runner.settings import Settings
from runner.types import SplitMode


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Options of a load, with the settings' defaults. None: the memory plan decides."""

    num_ctx: int | None = None
    num_parallel: int = 16
    num_gpu: int | None = None
    num_thread: int | None = None
    num_batch: int | None = None
    kv_cache_type: str = "f16"
    flash_attention: bool | None = None
    use_mmap: bool = True
    main_gpu: int | None = None
    split_mode: SplitMode | None = None
    tensor_split: tuple[float, ...] = ()
    num_cpu_moe: int | None = None
    use_mlock: bool = False
    numa: bool = False
    rope_frequency_base: float = 0.0
    rope_frequency_scale: float = 0.0
    native_kernels: bool = True
    lora_scale: float = 1.0
    draft_tokens: int | None = None
    backend: str | None = None
    quantize: str | None = None
    step_limit_s: float | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    devices: tuple[int, ...] = ()

    @property
    def ranks(self) -> int:
        """How many processes shall compute the model together."""
        return self.tensor_parallel * self.pipeline_parallel


def load_request(
    parameters: Mapping[str, Any], options: Mapping[str, Any], settings: Settings
) -> LoadRequest:
    """The load request of a Modelfile's parameters and a request's options, both checked."""
    given = {**parameters, **options}
    num_gpu, use_mmap = given.get("num_gpu"), given.get("use_mmap")
    lora_scale = given.get("lora_scale")
    quantize = None if given.get("quantize") == OFF else given.get("quantize")
    backend = given.get("backend")
    if quantize is not None and backend in (None, "auto"):
        backend = "torch"  # the only one that does that
    return LoadRequest(
        num_ctx=_positive(given.get("num_ctx")) or settings.context_length,
        num_parallel=given.get("num_parallel") or settings.num_parallel,
        num_gpu=None if num_gpu is None or num_gpu < 0 else int(num_gpu),
        num_thread=_positive(given.get("num_thread")) or settings.num_threads,
        num_batch=_positive(given.get("num_batch")),
        kv_cache_type=given.get("kv_cache_type") or settings.kv_cache_type,
        flash_attention=settings.flash_attention,
        use_mmap=True if use_mmap is None else use_mmap,
        main_gpu=_positive(given.get("main_gpu")),
        split_mode=given.get("split_mode"),
        tensor_split=tuple(given.get("tensor_split") or ()),
        num_cpu_moe=given.get("num_cpu_moe"),
        use_mlock=bool(given.get("use_mlock")),
        numa=bool(given.get("numa")),
        rope_frequency_base=given.get("rope_frequency_base") or 0.0,
        rope_frequency_scale=given.get("rope_frequency_scale") or 0.0,
        native_kernels=settings.native_kernels,
        lora_scale=1.0 if lora_scale is None else lora_scale,
        draft_tokens=given.get("draft_num_predict"),
        backend=backend,
        quantize=quantize,
        step_limit_s=settings.step_timeout,
        tensor_parallel=given.get("tensor_parallel") or 1,
        pipeline_parallel=given.get("pipeline_parallel") or 1,
        devices=tuple(given.get("devices") or ()),
    )


def _positive(value: Any) -> int | None:
    return int(value) if value is not None and value > 0 else None
