"""What this machine keeps of its cluster: the node that runs here, and what was deployed from here.

Two small files in the state folder, for this user only. Knows no Ray.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from registry.atomic import read_small, write_private

NODE_FILE = "cluster-node.json"
DEPLOYMENTS_FILE = "cluster-deployments.json"
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class NodeState:
    """The node of this machine. address: of the head. pid, started_s: of the process that runs
    Ray's; they tell whether it is that one still. token: the file."""

    address: str
    pid: int
    started_s: float
    token: str
    bundle_port: int
    is_head: bool


def read_node(state: Path) -> NodeState | None:
    """The node; None: this machine is in no cluster."""
    try:
        return NodeState(**json.loads(read_small(state / NODE_FILE, _MAX_BYTES)))
    except (OSError, ValueError, TypeError):
        return None


def write_node(state: Path, node: NodeState) -> None:
    """Keep it. Raises OSError."""
    state.mkdir(parents=True, exist_ok=True)
    write_private(state / NODE_FILE, json.dumps(asdict(node)).encode())


def forget_node(state: Path) -> None:
    """This machine is in no cluster any more."""
    (state / NODE_FILE).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class KeptDeployment:
    """What was deployed from here. cluster: the id of the cluster that was told of it last."""

    spec: dict[str, Any]
    cluster: str


def read_deployments(state: Path) -> dict[str, KeptDeployment]:
    """What was deployed from here, by application."""
    try:
        found = json.loads(read_small(state / DEPLOYMENTS_FILE, _MAX_BYTES))
        return {app: KeptDeployment(**kept) for app, kept in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_deployments(state: Path, kept: Mapping[str, KeptDeployment]) -> None:
    """Keep it. Raises OSError."""
    content = {app: asdict(each) for app, each in kept.items()}
    write_private(state / DEPLOYMENTS_FILE, json.dumps(content).encode())


def merged(
    kept: Mapping[str, KeptDeployment], known: Mapping[str, Any], cluster: str
) -> dict[str, KeptDeployment]:
    """What is kept, as other daemons have left it: known are the deployments of the cluster. What
    it was told of and does not know any more was undeployed; of the rest a new head knows
    nothing."""
    return {
        app: KeptDeployment(known[app], cluster) if app in known else each
        for app, each in kept.items()
        if app in known or each.cluster != cluster
    }
