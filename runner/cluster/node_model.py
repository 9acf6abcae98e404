"""A deployed model on a node: fetched, verified, and what loading it takes."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace

import ray

from runner.cluster.bundles import local_bundle
from runner.cluster.deployment import LOADED, ReplicaSpec
from runner.cluster.token import bundle_token
from runner.errors import Conflict
from runner.models.lease import AskedModel
from runner.settings import Settings, load


async def model_here(spec: ReplicaSpec) -> tuple[AskedModel, Settings]:
    """The model of spec on this node, and the settings that it is loaded with. Raises Conflict on
    a node of another version, and as local_bundle."""
    own, wanted = importlib.metadata.version("hearth"), spec.version
    if own != wanted:
        raise Conflict(f"this node has hearth {own}, the head {wanted}: install that here")
    settings = _settings(spec)
    node = ray.get_runtime_context().get_node_id()
    visible = spec.deployment.shared or spec.origin.node == node
    bundle = await local_bundle(spec.origin, bundle_token(), settings.data_dir, visible)
    asked = AskedModel.of(bundle, {}, settings, adapters=True)
    if (ranks := asked.request.ranks) > 1:  # which share the cores
        settings = replace(settings, num_threads=max(1, spec.deployment.cpus // ranks))
        asked = AskedModel.of(bundle, {}, settings, adapters=True)
    return asked, settings


def _settings(spec: ReplicaSpec) -> Settings:
    """Those of this node, with what the deployment and the daemon that made it decide."""
    wanted = spec.deployment
    return replace(
        load(),
        num_threads=wanted.cpus,
        num_parallel=wanted.num_parallel,
        context_length=wanted.context_length,
        memory_limit=wanted.memory_bytes,
        **{name: spec.settings[name] for name in LOADED if name in spec.settings},
    )
