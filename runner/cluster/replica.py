"""A replica: a deployment of Ray Serve around one worker process.

The worker is that of a single machine, in its sandbox, with its files only. Frames come and go as
bytes, which are parsed here and never unpickled. Serve starts, checks and ends replicas; a worker
that has died fails the check, so that Serve puts another replica in the place of this one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, Final

import ray
from ray import serve

from runner.cluster.deployment import ReplicaSpec
from runner.cluster.node_model import model_here
from runner.cluster.rank_group import RankGroup
from runner.cluster.shared_worker import SharedWorker
from runner.errors import Conflict, WorkerCrashed
from runner.models.memory_plan import plan_memory
from runner.models.memory_tracker import MemoryTracker
from runner.models.watchdog import Timeouts
from runner.worker.json_codec import to_json

_CHECK_S: Final = 1.0  # how often silent ingresses are looked for


class Replica:
    """One model on one node. The first parameter of what the ingress calls is the replica that it
    means, for the router (serve_router.py)."""

    async def __init__(self, spec: Mapping[str, Any]) -> None:  # type: ignore[misc]
        """Returns once the model is loaded. Raises what keeps it from that."""
        self._spec = ReplicaSpec.of(spec)
        self._group: RankGroup | None = None
        app = serve.get_replica_context().replica_id.deployment_id.app_name
        if app != (model := self._spec.deployment.model):
            raise Conflict(f"the application is named {app}; name it as its model, {model}")
        asked, settings = await model_here(self._spec)
        if self._spec.bundles > 1:
            self._group = await RankGroup.prepared(self._spec)
        self._memory = MemoryTracker(settings)
        await self._memory.probe()
        budget, network = self._memory.budget(()), None
        if self._group is not None:
            budget = replace(budget, free_bytes=self._group.free_bytes(budget.free_bytes))
        self._plan = plan_memory(asked.files, asked.shape, asked.request, budget)
        if self._group is not None:
            network = await self._group.start()
        timeouts = Timeouts(settings.load_timeout, settings.step_timeout)
        name, plan = self._spec.origin.name, self._plan.load_plan
        self._worker = SharedWorker(name, plan, timeouts, network=network)
        await self._worker.begin()
        self._worker.grow_pool = self._grow
        self._tending = asyncio.create_task(self._tend())

    async def _grow(self, tokens: int) -> int:
        """As runner.models.pool_growth, with nothing to evict."""
        grown = self._plan.grown(tokens, self._memory.budget(()).free_bytes)
        self._plan = grown or self._plan
        return self._plan.load_plan.pool_tokens

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_S)
            self._worker.close_silent()

    async def check_health(self) -> None:
        """Called by Serve. Raises what has ended the worker."""
        if (fault := self._worker.fault) is not None:
            raise fault

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Called by Serve, for autoscaling.py."""
        worker = self._worker
        return {"sequences": float(worker.sequences), "sessions": float(worker.sessions)}

    async def describe(self, target: str) -> dict[str, Any]:
        """What it is, and how it has loaded the model."""
        return {
            "replica": serve.get_replica_context().replica_id.unique_id,
            "node": ray.get_runtime_context().get_node_id(),
            "pid": os.getpid(),
            "worker": self._worker.pid,
            "ranks": [] if self._group is None else self._group.describe(),
            "digest": self._spec.origin.digest,
            "sequences": self._worker.sequences,
            "sessions": self._worker.sessions,
            "plan": to_json(self._plan.load_plan),
        }

    async def session(self, target: str, name: str) -> AsyncIterator[bytes]:
        """The frames for an ingress, until it closes the session or the worker ends."""
        session = self._worker.open(name)
        try:
            yield b""  # it is open
            async for data in session.read():
                yield data
        finally:
            self._worker.close_session(session)

    async def feed(self, target: str, name: str, data: bytes) -> None:
        """Frames of an ingress. Empty: it is still there. Raises WorkerCrashed without such a
        session."""
        session = self._worker.session(name)
        if session is None:
            raise WorkerCrashed(f"the replica has no session {name}")
        session.feed(data)

    async def leave(self, target: str, name: str) -> None:
        """The ingress wants no more."""
        if (session := self._worker.session(name)) is not None:
            self._worker.close_session(session)

    async def __del__(self) -> None:
        """Called by Serve once the replica has drained."""
        if (tending := getattr(self, "_tending", None)) is not None:
            tending.cancel()
            await self._worker.close()
        if (group := getattr(self, "_group", None)) is not None:
            group.end()
