"""POST /api/plan: the memory that a model would take, before it is loaded."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from runner.models.load_forecast import LoadForecast
from runner.models.memory_estimate import MemoryEstimate
from runner.models.options import check_options
from runner.server.console.answers import PlanResponse
from runner.server.http_request import HttpRequest
from runner.server.request_body import WireModel
from runner.server.routes import route


class PlanRequest(WireModel):
    """POST /api/plan. options: as /api/generate has them; num_ctx counts most."""

    model: str = Field(min_length=1, max_length=512)
    options: dict[str, Any] = Field(default_factory=dict)


@route("POST", "/api/plan", scope="inference")
async def plan(http: HttpRequest, body: PlanRequest) -> PlanResponse:
    """Estimate the memory that loading a model would take. Nothing is loaded."""
    options = check_options(body.options)
    return _fields(body.model, await http.services.models.forecast(body.model, options))


def _fields(model: str, forecast: LoadForecast) -> PlanResponse:
    plan, obstacle = forecast.plan, forecast.obstacle
    load_plan = None if plan is None else plan.load_plan
    estimate = MemoryEstimate(0, 0, 0) if plan is None else plan.estimate
    needed = estimate.host_bytes - estimate.swap_bytes
    if obstacle is not None:
        needed = int(obstacle.details["needed_bytes"])
    return {
        "model": model,
        "fits": forecast.fits,
        "message": None if obstacle is None else obstacle.message,
        "needed": needed,
        "free": forecast.free_bytes,
        "weights": estimate.weights_bytes,
        "cache": estimate.cache_bytes,
        "compute": estimate.compute_bytes,
        "gpu": estimate.gpu_bytes,
        "swap": estimate.swap_bytes,
        "context_length": None if load_plan is None else load_plan.context_length,
        "backend": None if load_plan is None else load_plan.backend,
        "quantize": None if load_plan is None else load_plan.quantize,
        "gpu_layers": 0 if load_plan is None else load_plan.gpu_layers,
        "cpu_moe_layers": 0 if load_plan is None else load_plan.cpu_moe_layers,
        "devices": estimate.device_entries(),
    }
