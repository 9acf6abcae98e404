"""The environment and the options of Ray's processes: where its secret is, what it leaves out.

Knows no Ray.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# Each of these would report to its makers, or listen where nobody asked it to.
_OFF = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SERVE_ENABLE_HA_PROXY": "0",
    "RAY_enable_open_telemetry": "0",
    "RAY_COLOR_PREFIX": "0",
}
# Ray gives its workers a niceness of 15, with which a busy machine hardly runs them
_NICE = {"RAY_worker_niceness": "0"}
# A replica whose raylet has died goes on until it sees that, by default up to 1 s, and only then is
# it silent
_PROMPT = {"RAY_raylet_death_check_interval_milliseconds": "200"}
# Calls go to a replica by gRPC, not as a task of Ray, and stay on one event loop on either side: a
# hop takes half as long
_DIRECT = {
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
}
# Metrics, events and statistics that nobody reads here take processor time on every node
_UNREAD = {
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "1000",
}
# Serve looks ten times a second by default whether there is something to do
_PATIENT = {"RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.25"}


def without_ray_client(parameters: Any, is_head: bool) -> None:  # noqa: ARG001
    """Called by `ray start`, which has no option for it: nobody uses Ray Client, whose server would
    be one more that runs code."""
    parameters.ray_client_server_port = None


def ray_environment(token: Path) -> dict[str, str]:
    """For a process that uses or is a part of Ray. token: the file with the cluster's."""
    return {
        **os.environ,
        **_OFF,
        **_NICE,
        **_PROMPT,
        **_DIRECT,
        **_UNREAD,
        **_PATIENT,
        "RAY_START_HOOK": f"{__name__}.{without_ray_client.__name__}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        # The code of replicas is what is installed on the node, never what a driver sends along
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    }
