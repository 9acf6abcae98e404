"""How many replicas a deployment shall have: as many as its sequences in flight need.

Serve's own policy counts calls, of which an ingress has one for each replica, however much it asks.
Serve bounds and delays what this gives.
"""

from __future__ import annotations

import math
from typing import Any


def replicas_wanted(sequences: float, sessions: float, target: float) -> int:
    """sequences, sessions: of all replicas together. None in flight: one, while an ingress is
    connected, else none."""
    return max(math.ceil(sequences / target), 1 if sessions else 0)


def policy(context: Any) -> tuple[int, dict[str, Any]]:
    """See ray.serve.config.AutoscalingPolicy."""
    told = context.aggregated_metrics or {}
    sequences, sessions = (sum(told.get(name, {}).values()) for name in ("sequences", "sessions"))
    queued = context.total_queued_requests or 0
    wanted = replicas_wanted(sequences, sessions, context.config.target_ongoing_requests)
    return max(wanted, 1 if queued else 0), {}
