"""Options of a load that have no effect, or another than was asked for, each with the reason.

Knows the plan that a model was loaded by. Loads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from modelfile.load_quantization import OFF
from runner.models.memory_estimate import gib
from runner.models.memory_plan import MemoryPlan
from runner.process_limits import limits_of

_NODES: Final = Path("/sys/devices/system/node")
_ONLY_LLAMACPP: Final = "only the backend llamacpp has it"
_OTHERWISE: Final = "the model is loaded already, with another value; unload it first (hearth stop)"


def load_notes(
    given: Mapping[str, Any], plan: MemoryPlan, clamped_context: int | None = None
) -> tuple[str, ...]:
    """What to tell of the options of a load, checked, of a model loaded by plan. clamped_context:
    the context in use where more was asked for."""
    found = []
    if clamped_context is not None:
        asked = given.get("num_ctx")
        found.append(f"num_ctx={asked} is more than the model has: {clamped_context} is used")
    for name, reason_for in _REASONS.items():
        value = given.get(name)
        if not value and (value is None or name != "num_gpu"):
            continue  # off
        reason = reason_for(value, plan)
        if reason is not None:
            found.append(f"{name}={_shown(value)} has no effect: {reason}")
    return tuple(found)


def _shown(value: object) -> str:
    if isinstance(value, tuple | list):
        return ",".join(f"{each:g}" for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quantize(kind: str, plan: MemoryPlan) -> str | None:
    if (None if kind == OFF else kind) == plan.load_plan.quantize:
        return None
    return "the model runs on a cluster, loaded as its Modelfile says"


def _as_loaded(name: str) -> Callable[[object, MemoryPlan], str | None]:
    """For an option that is the same in the plan."""

    def reason(value: object, plan: MemoryPlan) -> str | None:
        if value == getattr(plan.load_plan, name):
            return None
        return _OTHERWISE

    return reason


def _on_a_device(name: str) -> Callable[[Any, MemoryPlan], str | None]:
    """For an option that says which devices have what of the model."""

    def reason(value: Any, plan: MemoryPlan) -> str | None:
        if name != "num_gpu" and plan.load_plan.backend != "llamacpp":
            return _ONLY_LLAMACPP
        if not plan.devices and plan.load_plan.gpu_layers:
            return None  # on another machine
        if not plan.devices:
            return "there is no GPU that this backend can use"
        if value != getattr(plan.request, name):
            return _OTHERWISE
        if plan.load_plan.gpu_layers:
            return _UNUSED[name](plan)
        if plan.request.num_gpu == 0:
            return "num_gpu=0 has the processor compute the model"
        gpus = ", ".join(f"{gib(gpu.free_bytes)} of {gpu} is free" for gpu in plan.devices)
        return f"the processor computes the model, no layer of it fits on a GPU: {gpus}"

    return reason


def _num_gpu(layers: int, plan: MemoryPlan) -> str | None:
    if layers > 0:
        return _on_a_device("num_gpu")(layers, plan)
    return _OTHERWISE if layers == 0 and plan.load_plan.gpu_layers else None


def _of_several(plan: MemoryPlan) -> str | None:
    """Of an option that says how several devices share the model."""
    if len(plan.devices) == 1:
        return f"there is one GPU, {plan.devices[0]}"
    if plan.load_plan.split_mode == "none":
        return "all of the model is on one GPU (split_mode none, or main_gpu without split_mode)"
    return None


def _main_gpu(plan: MemoryPlan) -> str | None:
    mode = plan.load_plan.split_mode
    return None if mode == "none" else f"split_mode={mode} uses all GPUs; split_mode none one"


def _split_mode(plan: MemoryPlan) -> str | None:
    return None if plan.load_plan.split_mode == "none" else _of_several(plan)


def _num_cpu_moe(plan: MemoryPlan) -> str | None:
    return None if plan.load_plan.cpu_moe_layers else "the model has no experts"


_UNUSED: Final[Mapping[str, Callable[[MemoryPlan], str | None]]] = {
    "num_gpu": lambda _plan: None,
    "main_gpu": _main_gpu,
    "split_mode": _split_mode,
    "tensor_split": _of_several,
    "num_cpu_moe": _num_cpu_moe,
}


def _llamacpp(_value: object, plan: MemoryPlan) -> str | None:
    return None if plan.load_plan.backend == "llamacpp" else _ONLY_LLAMACPP


def _use_mlock(value: object, plan: MemoryPlan) -> str | None:
    limit, _ = limits_of("MEMLOCK")
    size = Path(plan.load_plan.path).stat().st_size if Path(plan.load_plan.path).is_file() else 0
    if plan.load_plan.backend == "llamacpp" and limit is not None and limit < size:
        return (
            f"only {limit} bytes may be locked (ulimit -l; LimitMEMLOCK of systemd), the model has"
            f" {size}"
        )
    return _llamacpp(value, plan)


def _numa(value: object, plan: MemoryPlan) -> str | None:
    if len(list(_NODES.glob("node[0-9]*"))) < 2:
        return "this machine has one NUMA node"
    return _llamacpp(value, plan)


_REASONS: Final[Mapping[str, Callable[[Any, MemoryPlan], str | None]]] = {
    "quantize": _quantize,
    **{name: _as_loaded(name) for name in ("tensor_parallel", "pipeline_parallel", "devices")},
    **{name: _on_a_device(name) for name in _UNUSED},
    "num_gpu": _num_gpu,
    "use_mlock": _use_mlock,
    "numa": _numa,
    "rope_frequency_base": _llamacpp,
    "rope_frequency_scale": _llamacpp,
}
