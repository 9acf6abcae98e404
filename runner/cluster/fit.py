"""Whether a cluster can hold a deployment, before anything is loaded. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runner.cluster.deployment import Deployment
from runner.errors import Conflict, InsufficientMemory, InvalidRequest
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
    memory cannot load it; None: it can. ranks: processes that compute it together."""

    bundle_bytes: int
    refusal: Callable[[int], str | None]
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class Held:
    """What a deployment has already, whose cores are not free. bundles: see ReplicaSpec."""

    replicas: int = 0
    bundles: int = 1


NOTHING: Final = Held()


def check(
    wanted: Deployment,
    nodes: Sequence[NodeFacts],
    version: str,
    need: Need,
    held: Held = NOTHING,
) -> int:
    """How many bundles each replica takes: 1, on one node, or one for each process of a model that
    no node holds. Raises Conflict for nodes of another version, InsufficientMemory when too few
    replicas have a place, each with the numbers, InvalidRequest for cores that the processes cannot
    share."""
    others = [node for node in nodes if node.version and node.version != version]
    if others:
        told = ", ".join(f"{node.name} has {node.version}" for node in others)
        raise Conflict(f"all nodes must have hearth {version}, but {told}: install it there")
    least = max(1, wanted.min_replicas)
    places, why = held.replicas if held.bundles == 1 else 0, list[str]()
    for node in nodes:
        count, reason = _places(wanted, node, need)
        places += count
        if reason is not None:
            why.append(f"{node.name} {reason}")
    if places >= least and held.bundles == 1:
        return 1
    if need.ranks > 1 and not wanted.gpus:
        return _check_spread(wanted, nodes, need, held)
    raise InsufficientMemory(
        f"{wanted.model}: {least} replicas are wanted and {places} have a place: "
        f"{'; '.join(why) or 'there is no node'}",
        wanted=least,
        places=places,
    )


def _check_spread(wanted: Deployment, nodes: Sequence[NodeFacts], need: Need, held: Held) -> int:
    """check, for a model whose processes have a bundle each."""
    ranks = need.ranks
    if wanted.cpus % ranks:
        raise InvalidRequest(
            f"cpus is {wanted.cpus}; no node has a place for all {ranks} processes of"
            f" {wanted.model}, and to share the cores on several nodes it must be a multiple of"
            f" {ranks}",
            param="cpus",
        )
    least = ranks * max(1, wanted.min_replicas)
    places, why = held.replicas * held.bundles if held.bundles > 1 else 0, list[str]()
    for node in nodes:
        count, reason = _rank_places(wanted, node, need)
        places += count
        why.append(f"{node.name} {reason or f'has a place for {count}'}")
    if places < least:
        raise InsufficientMemory(
            f"{wanted.model}: {least} processes are wanted, {ranks} for each replica, and {places}"
            f" have a place: {'; '.join(why) or 'there is no node'}",
            wanted=least,
            places=places,
        )
    return ranks


def _rank_places(wanted: Deployment, node: NodeFacts, need: Need) -> tuple[int, str | None]:
    """How many processes a node can hold, each with its share of the model, and what keeps it from
    any."""
    if not node.version or not node.memory_bytes:
        return 0, "does not answer"
    share = wanted.cpus // need.ranks
    count = int(node.free_cpus // share)
    if count == 0:
        return 0, (f"has {node.free_cpus:g} of {node.cpus:g} cores free, a process takes {share}")
    if (reason := _disk_refusal(wanted, node, need)) is not None:
        return 0, reason
    for ranks in range(count, 0, -1):
        reason = need.refusal(_share(wanted, node, ranks) * need.ranks)
        if reason is None:
            return ranks, None
    return 0, reason


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
    if (reason := _disk_refusal(wanted, node, need)) is not None:
        return 0, reason
    count = min(by_cpu, by_gpu)
    for replicas in range(count, 0, -1):
        if need.refusal(_share(wanted, node, replicas)) is None:
            return replicas, None if replicas == count else "has no memory for more"
    return 0, need.refusal(_share(wanted, node, 1))


def _disk_refusal(wanted: Deployment, node: NodeFacts, need: Need) -> str | None:
    if wanted.shared or node.is_own or node.disk_bytes >= need.bundle_bytes:
        return None
    has, takes = gib(node.disk_bytes), gib(need.bundle_bytes)
    return f"has {has} of disk free, the model takes {takes}"


def _share(wanted: Deployment, node: NodeFacts, replicas: int) -> int:
    free = node.memory_bytes // replicas
    return free if wanted.memory_bytes is None else min(free, wanted.memory_bytes)
