"""GET /api/cluster, POST /api/cluster/deploy, /scale and /undeploy: models on several machines. For
the daemon's owner and admin keys."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from typing_extensions import TypedDict

from runner.server.http_request import HttpRequest
from runner.server.request_body import WireModel
from runner.server.routes import route


class DeployBody(WireModel):
    """POST /api/cluster/deploy. The fields are those of a model in cluster.yaml; what is left out
    has the default of runner.cluster.deployment.Deployment."""

    model: str = Field(min_length=1, max_length=512)
    min_replicas: int | None = None
    max_replicas: int | None = None
    cpus: int | None = None
    gpus: float | None = None
    num_parallel: int | None = None
    context_length: int | None = None
    memory_bytes: int | None = None
    target_ongoing: float | None = None
    keep_alive_s: float | None = None
    drain_s: float | None = None
    shared: bool | None = None


class ScaleBody(WireModel):
    """POST /api/cluster/scale."""

    model: str = Field(min_length=1, max_length=512)
    min_replicas: int
    max_replicas: int


class UndeployBody(WireModel):
    """POST /api/cluster/undeploy."""

    model: str = Field(min_length=1, max_length=512)


class DeployedModel(TypedDict):
    """A deployment that is ready. digest: of the manifest; replicas: at least so many."""

    model: str
    digest: str
    replicas: int


class UndeployedModel(TypedDict):
    """A deployment that has ended."""

    model: str


class ClusterStatus(TypedDict):
    """nodes: what each has and has free. deployments: by model, with what the replicas say."""

    nodes: list[dict[str, Any]]
    deployments: dict[str, dict[str, Any]]


@route("GET", "/api/cluster")
async def show_cluster(http: HttpRequest) -> ClusterStatus:
    """The nodes and deployments of this machine's cluster."""
    status = await http.services.cluster.opened().status()
    return {"nodes": status["nodes"], "deployments": status["deployments"]}


@route("POST", "/api/cluster/deploy")
async def deploy_model(http: HttpRequest, body: DeployBody) -> DeployedModel:
    """Start replicas of a model, or change its deployment without a failed request. Answered once
    they are ready."""
    from runner.cluster.deployment import Deployment

    cluster = http.services.cluster.opened()
    fields = body.model_dump(exclude_none=True)
    fields.setdefault("num_parallel", http.services.settings.num_parallel)
    deployed = await cluster.deploy(Deployment.of(fields))
    return {"model": deployed["model"], "digest": deployed["digest"],
            "replicas": deployed["replicas"]}  # fmt: skip


@route("POST", "/api/cluster/scale")
async def scale_model(http: HttpRequest, body: ScaleBody) -> DeployedModel:
    """Change the number of replicas of a deployment. Removed replicas finish their answers."""
    cluster = http.services.cluster.opened()
    scaled = await cluster.scale(body.model, body.min_replicas, body.max_replicas)
    return {"model": scaled["model"], "digest": scaled["digest"], "replicas": scaled["replicas"]}


@route("POST", "/api/cluster/undeploy")
async def undeploy_model(http: HttpRequest, body: UndeployBody) -> UndeployedModel:
    """End a deployment. The model runs on this machine from then on."""
    await http.services.cluster.opened().undeploy(body.model)
    return {"model": body.model}
