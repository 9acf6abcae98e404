"""The application of Ray Serve for one model: what the bridge runs, and `serve build` and KubeRay
by the import path runner.cluster.app:build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig

from runner.cluster.deployment import Deployment, ReplicaSpec
from runner.cluster.replica import Replica

DEPLOYMENT = "replica"  # of each application
MAX_CALLS = 100_000  # the ingress bounds what is in flight
CHECK_S = 1.0
LOOK_BACK_S = 10.0


def build(args: Mapping[str, Any]) -> serve.Application:
    """args: a ReplicaSpec as JSON values. Raises InvalidRequest."""
    spec = ReplicaSpec.of(args)
    return serve.deployment(Replica).options(**options_of(spec.deployment)).bind(spec.to_json())


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
