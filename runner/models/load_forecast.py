"""What a load would come to, told before anything is loaded or unloaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runner.errors import InsufficientMemory
from runner.models.lease import AskedModel
from runner.models.memory_plan import MemoryBudget, MemoryPlan, plan_memory

Fit = Literal["loaded", "now", "after_unloading", "never"]


@dataclass(frozen=True, slots=True)
class LoadForecast:
    """fits: it is loaded, fits into free_bytes, once idle models have left, or not at all; there is
    no plan then, but obstacle."""

    free_bytes: int
    fits: Fit
    plan: MemoryPlan | None = None
    obstacle: InsufficientMemory | None = None


def forecast(asked: AskedModel, now: MemoryBudget, emptied: MemoryBudget) -> LoadForecast:
    """Of a model that is not loaded. emptied: the budget if all others were gone."""
    obstacle = None
    budgets: tuple[tuple[Fit, MemoryBudget], ...] = (("now", now), ("after_unloading", emptied))
    for fits, budget in budgets:
        try:
            plan = plan_memory(asked.files, asked.shape, asked.request, budget)
        except InsufficientMemory as error:
            obstacle = error
        else:
            return LoadForecast(now.free_bytes, fits, plan)
    return LoadForecast(now.free_bytes, "never", None, obstacle)
