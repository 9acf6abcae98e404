"""Options of a load that have no effect, or another than was asked for, each with the reason.

Knows the plan that a model was loaded by. Loads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from modelfile.load_quantization import OFF
from runner.process_limits import limits_of
from runner.types import LoadPlan

_NODES: Final = Path("/sys/devices/system/node")
_ONLY_LLAMACPP: Final = "only the backend llamacpp has it"


def load_notes(
    given: Mapping[str, Any], plan: LoadPlan, clamped_context: int | None = None
) -> tuple[str, ...]:
    """What to tell of the options of a load, checked, of a model loaded by plan. clamped_context:
    the context in use where more was asked for."""
    found = []
    if clamped_context is not None:
        asked = given.get("num_ctx")
        found.append(f"num_ctx={asked} is more than the model has: {clamped_context} is used")
    for name, reason_for in _REASONS.items():
        value = given.get(name)
        if not value:
            continue
        reason = reason_for(value, plan)
        if reason is not None:
            found.append(f"{name}={_shown(value)} has no effect: {reason}")
    return tuple(found)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quantize(kind: str, plan: LoadPlan) -> str | None:
    if (None if kind == OFF else kind) == plan.quantize:
        return None
    return "the model runs on a cluster, loaded as its Modelfile says"


def _as_loaded(name: str) -> Callable[[object, LoadPlan], str | None]:
    """For an option that is the same in the plan."""

    def reason(value: object, plan: LoadPlan) -> str | None:
        if value == getattr(plan, name):
            return None
        return "the model is loaded already, otherwise; unload it first (hearth stop)"

    return reason


def _num_gpu(layers: int, plan: LoadPlan) -> str | None:
    if layers <= 0 or plan.gpu_layers:
        return None
    return "there is no GPU that this backend can use"


def _main_gpu(_number: int, plan: LoadPlan) -> str | None:
    if plan.gpu_layers == 0:
        return "the model is computed by the processor"
    return None if plan.backend == "llamacpp" else _ONLY_LLAMACPP


def _llamacpp(_value: object, plan: LoadPlan) -> str | None:
    return None if plan.backend == "llamacpp" else _ONLY_LLAMACPP


def _use_mlock(value: object, plan: LoadPlan) -> str | None:
    limit, _ = limits_of("MEMLOCK")
    size = Path(plan.path).stat().st_size if Path(plan.path).is_file() else 0
    if plan.backend == "llamacpp" and limit is not None and limit < size:
        return (
            f"only {limit} bytes may be locked (ulimit -l; LimitMEMLOCK of systemd), the model has"
            f" {size}"
        )
    return _llamacpp(value, plan)


def _numa(value: object, plan: LoadPlan) -> str | None:
    if len(list(_NODES.glob("node[0-9]*"))) < 2:
        return "this machine has one NUMA node"
    return _llamacpp(value, plan)


_REASONS: Final[Mapping[str, Callable[[Any, LoadPlan], str | None]]] = {
    "quantize": _quantize,
    **{name: _as_loaded(name) for name in ("tensor_parallel", "pipeline_parallel", "devices")},
    "num_gpu": _num_gpu,
    "main_gpu": _main_gpu,
    "use_mlock": _use_mlock,
    "numa": _numa,
    "rope_frequency_base": _llamacpp,
    "rope_frequency_scale": _llamacpp,
}
