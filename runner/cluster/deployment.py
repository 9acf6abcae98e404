"""What is deployed: a model, its replicas and what each of them may use. A cluster.yaml says the
same.

Checks what people write. Knows no Ray and no models.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from runner.errors import InvalidRequest

MAX_REPLICAS: Final = 64
# Settings of the daemon that hold for the replicas that it deploys
LOADED: Final = ("kv_cache_type", "flash_attention", "native_kernels", "step_timeout")
_COUNTS: Final = {"min_replicas": 0, "max_replicas": 1, "cpus": 1, "num_parallel": 1}


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on a cluster. cpus: cores of each replica, and threads; gpus: whole devices or
    shares of one. target_ongoing: sequences of a replica that autoscaling aims at. keep_alive_s:
    how long nobody asks before the last replica goes, where min_replicas is 0. drain_s: how long a
    replica that goes may finish its answers. shared: each node sees the folder of the models at the
    same path."""

    model: str
    min_replicas: int = 1
    max_replicas: int = 1
    cpus: int = 1
    gpus: float = 0.0
    num_parallel: int = 16
    context_length: int | None = None
    memory_bytes: int | None = None
    target_ongoing: float = 8.0
    keep_alive_s: float = 300.0
    drain_s: float = 600.0
    shared: bool = False

    def __post_init__(self) -> None:
        for name, least in _COUNTS.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InvalidRequest(f"{name} is {value!r}; it must be {least} or more", param=name)
        if self.max_replicas < self.min_replicas:
            raise InvalidRequest(
                f"max_replicas is {self.max_replicas}, less than min_replicas, {self.min_replicas}",
                param="max_replicas",
            )
        if self.max_replicas > MAX_REPLICAS:
            raise InvalidRequest(
                f"max_replicas is {self.max_replicas}; at most {MAX_REPLICAS} are supported",
                param="max_replicas",
            )
        for name in ("gpus", "target_ongoing", "keep_alive_s", "drain_s"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or value < 0 or not math.isfinite(value):
                raise InvalidRequest(f"{name} is {value!r}; it must be 0 or more", param=name)
        if self.gpus > 1 and not float(self.gpus).is_integer():
            raise InvalidRequest(
                f"gpus is {self.gpus:g}; more than one are whole GPUs", param="gpus"
            )
        if self.target_ongoing <= 0:
            raise InvalidRequest("target_ongoing is 0; it must be more", param="target_ongoing")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Deployment:
        """The deployment that a mapping of these fields describes. replicas: N or MIN..MAX in
        place of the two. Raises InvalidRequest."""
        values = dict(given)
        if "replicas" in values:
            values["min_replicas"], values["max_replicas"] = replica_range(values.pop("replicas"))
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise InvalidRequest(
                f"{unknown[0]!r} is not a setting of a deployment; those are"
                f" {', '.join(sorted(known | {'replicas'}))}",
                param=unknown[0],
            )
        model = values.get("model")
        if not isinstance(model, str) or not model:
            raise InvalidRequest("a deployment names no model", param="model")
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """Its fields; of is the inverse."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class BundleOrigin:
    """Where a node gets a model from: the manifest with this digest, from the server of the daemon
    that has deployed it at url, or from the folder, where the node sees that. node: of that daemon;
    empty: of none."""

    name: str
    digest: str
    url: str
    folder: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """All that a replica is made of. settings: of the daemon that has deployed it, which decide how
    models are loaded. generation: that replicas have in common; a change of their number keeps it.
    bundles: of the placement group of a replica; more than 1: one for each process of its model.
    """

    deployment: Deployment
    origin: BundleOrigin
    version: str  # of hearth
    settings: Mapping[str, Any] = field(default_factory=dict)
    generation: str = ""
    bundles: int = 1

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ReplicaSpec:
        """The inverse of to_json."""
        return cls(
            Deployment.of(given["deployment"]),
            BundleOrigin(**given["origin"]),
            str(given["version"]),
            dict(given.get("settings") or {}),
            str(given.get("generation") or ""),
            int(given.get("bundles") or 1),
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values: what crosses to other machines, and stands in files of Serve."""
        return dataclasses.asdict(self)


def replica_range(text: Any) -> tuple[int, int]:
    """N or MIN..MAX. Raises InvalidRequest."""
    first, dots, last = str(text).partition("..")
    try:
        return int(first), int(last if dots else first)
    except ValueError:
        raise InvalidRequest(
            f"replicas is {text!r}; write a number, or two such as 2..8", param="replicas"
        ) from None
