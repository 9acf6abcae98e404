"""Whether a cluster can hold a deployment, before anything is loaded. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runner.cluster.deployment import Deployment
from runner.errors import Conflict, InsufficientMemory
from runner.models.memory_estimate import gib

VERSION_LABEL: Final = "hearth-version"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node has, and how much of it nobody uses. version: of hearth; empty where the node did
    not answer. is_own: of the daemon that asks, whose models are there already."""

    id: str
    address: str
    version: str
    cpus: float
    gpus: float
    free_cpus: float
    free_gpus: float
    memory_bytes: int
    disk_bytes: int
    is_head: bool = False
    is_own: bool = False

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.address} ({self.id[:8]})"

    def to_json(self) -> dict[str, Any]:
        """Its fields."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class Need:
    """What a model takes. bundle_bytes: of all its files. refusal: why a node with so many bytes of
    memory cannot load it; None: it can."""

    bundle_bytes: int
    refusal: Callable[[int], str | None]


def check(
    wanted: Deployment, nodes: Sequence[NodeFacts], version: str, need: Need, held: int = 0
) -> None:
    """held: replicas that this deployment has already, whose cores are not free. Raises Conflict
    for nodes of another version, InsufficientMemory when too few replicas have a place, each with
    the numbers."""
    others = [node for node in nodes if node.version and node.version != version]
    if others:
        told = ", ".join(f"{node.name} has {node.version}" for node in others)
        raise Conflict(f"all nodes must have hearth {version}, but {told}: install it there")
    least = max(1, wanted.min_replicas)
    places, why = held, list[str]()
    for node in nodes:
        count, reason = _places(wanted, node, need)
        places += count
        if reason is not None:
            why.append(f"{node.name} {reason}")
    if places < least:
        raise InsufficientMemory(
            f"{wanted.model}: {least} replicas are wanted and {places} have a place: "
            f"{'; '.join(why) or 'there is no node'}",
            wanted=least,
            places=places,
        )


def _places(wanted: Deployment, node: NodeFacts, need: Need) -> tuple[int, str | None]:
    """How many replicas a node can hold, and what keeps it from more."""
    if not node.version or not node.memory_bytes:
        return 0, "does not answer"
    by_cpu = int(node.free_cpus // wanted.cpus)
    by_gpu = int(node.free_gpus // wanted.gpus) if wanted.gpus else by_cpu
    if min(by_cpu, by_gpu) == 0:
        gpus = f" and {node.free_gpus:g} of {node.gpus:g} GPUs" if wanted.gpus else ""
        takes = f" and {wanted.gpus:g} GPUs" if wanted.gpus else ""
        return 0, (
            f"has {node.free_cpus:g} of {node.cpus:g} cores{gpus} free, a replica takes"
            f" {wanted.cpus}{takes}"
        )
    if not (wanted.shared or node.is_own) and node.disk_bytes < need.bundle_bytes:
        has, takes = gib(node.disk_bytes), gib(need.bundle_bytes)
        return 0, f"has {has} of disk free, the model takes {takes}"
    count = min(by_cpu, by_gpu)
    for replicas in range(count, 0, -1):
        if need.refusal(_share(wanted, node, replicas)) is None:
            return replicas, None if replicas == count else "has no memory for more"
    return 0, need.refusal(_share(wanted, node, 1))


def _share(wanted: Deployment, node: NodeFacts, replicas: int) -> int:
    free = node.memory_bytes // replicas
    return free if wanted.memory_bytes is None else min(free, wanted.memory_bytes)
