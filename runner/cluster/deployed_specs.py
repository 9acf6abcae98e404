"""The specs of all deployments, in Ray's store of keys, where every daemon of the cluster finds
them. To be used where Ray is connected; each call blocks for a moment."""

from __future__ import annotations

import json
import uuid
from typing import Any, Final

from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
)

from runner.cluster.deployment import ReplicaSpec

_SPACE: Final = b"hearth"
_CLUSTER_SPACE: Final = b"hearth-cluster"


def put(spec: ReplicaSpec) -> None:
    """Keep the spec of the application that is named as its model."""
    content = json.dumps(spec.to_json())
    _internal_kv_put(spec.deployment.model, content, overwrite=True, namespace=_SPACE)


def delete(app: str) -> None:
    """Forget an application."""
    _internal_kv_del(app, namespace=_SPACE)


def read_all() -> dict[str, Any]:
    """The specs as JSON values, by application."""
    found = {}
    for key in _internal_kv_list("", namespace=_SPACE):
        value = _internal_kv_get(key, namespace=_SPACE)
        if value is not None:
            found[key.decode()] = json.loads(value)
    return found


def cluster_id() -> str:
    """Unlike that of any other cluster, and of this one before its head was lost."""
    _internal_kv_put("id", uuid.uuid4().hex, overwrite=False, namespace=_CLUSTER_SPACE)
    return bytes(_internal_kv_get("id", namespace=_CLUSTER_SPACE)).decode()
