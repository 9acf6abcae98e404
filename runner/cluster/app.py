"""The application of Ray Serve for one model: what the bridge runs, and a config of Serve, such as
KubeRay's, by the import path runner.cluster.app:build."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig

from registry.names import Name
from registry.store import Store
from runner.cluster import deployed_specs
from runner.cluster.deployment import BundleOrigin, Deployment, ReplicaSpec
from runner.cluster.replica import Replica
from runner.settings import load

DEPLOYMENT = "replica"  # of each application
MAX_CALLS = 100_000  # the ingress bounds what is in flight
CHECK_S = 1.0
LOOK_BACK_S = 10.0


def build(args: Mapping[str, Any]) -> serve.Application:
    """args: a ReplicaSpec as JSON values, or a model of a cluster.yaml, with the folder of the
    models, which each node must see: the one of this node's settings by default. On a cluster, its
    daemons learn of the deployment. Raises InvalidRequest, and RegistryError for a model that the
    folder lacks."""
    spec = ReplicaSpec.of(args) if "origin" in args else shared_spec(args)
    if ray.is_initialized():
        deployed_specs.put(spec)
    options = options_of(spec.deployment)
    if spec.bundles > 1:
        share = {"CPU": spec.deployment.cpus // spec.bundles}
        options["ray_actor_options"] = {"num_cpus": share["CPU"]}
        options |= {
            "placement_group_bundles": [share] * spec.bundles,
            "placement_group_strategy": "PACK",
        }
    if spec.generation:
        # Serve would start all replicas anew with each change of their number
        options |= {"version": spec.generation, "_internal": True}
    return serve.deployment(Replica).options(**options).bind(spec.to_json())


def shared_spec(args: Mapping[str, Any]) -> ReplicaSpec:
    """The spec of a model by its name in a folder of models. Raises as build."""
    values = dict(args)
    folder = Path(values.pop("folder", None) or load().models_dir)
    wanted = Deployment.of({**values, "shared": True})
    stored = Store.open(folder, read_only=True).get(Name.parse(wanted.model))
    name = stored.name.short
    origin = BundleOrigin(name, str(stored.digest), "", str(folder))
    return ReplicaSpec(
        Deployment.of({**wanted.to_json(), "model": name}),
        origin,
        importlib.metadata.version("hearth"),
    )


def options_of(wanted: Deployment) -> dict[str, Any]:
    """The options of Serve's deployment."""
    scaled: dict[str, Any] = {"num_replicas": wanted.max_replicas}
    if wanted.min_replicas < wanted.max_replicas:
        scaled = {
            "autoscaling_config": AutoscalingConfig(
                min_replicas=wanted.min_replicas,
                max_replicas=wanted.max_replicas,
                target_ongoing_requests=wanted.target_ongoing,
                upscale_delay_s=3.0,
                downscale_delay_s=max(60.0, LOOK_BACK_S),
                downscale_to_zero_delay_s=wanted.keep_alive_s,
                look_back_period_s=LOOK_BACK_S + 1,
                policy=AutoscalingPolicy(policy_function="runner.cluster.autoscaling:policy"),
            )
        }
    return {
        "name": DEPLOYMENT,
        **scaled,
        "max_ongoing_requests": MAX_CALLS,
        "ray_actor_options": {"num_cpus": wanted.cpus, "num_gpus": wanted.gpus},
        "health_check_period_s": CHECK_S,
        "health_check_timeout_s": 30.0,
        "graceful_shutdown_wait_loop_s": 0.2,
        "graceful_shutdown_timeout_s": wanted.drain_s,
        "max_constructor_retry_count": 3,
        "request_router_config": RequestRouterConfig(
            request_router_class="runner.cluster.serve_router:TargetRouter"
        ),
        "logging_config": {"enable_access_log": False, "log_level": "WARNING"},
    }
