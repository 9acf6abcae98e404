"""A process of a model whose first one is on another node: an actor of Ray around it, in a bundle
of the replica's placement group. It ends with the replica, and the process with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import ray

from runner.child_process import child_options
from runner.cluster.deployment import ReplicaSpec
from runner.cluster.node_model import model_here
from runner.errors import ModelLoadFailed
from runner.models.lease import AskedModel
from runner.models.memory_tracker import MemoryTracker
from runner.worker.rank import Here
from runner.worker.ranks import RANK_COMMAND

START_S: Final = 300.0  # to import PyTorch, on a busy machine


class RankHost:
    """Made by Ray."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._spec = ReplicaSpec.of(spec)
        self._process: asyncio.subprocess.Process | None = None
        self._asked: AskedModel | None = None

    async def prepare(self) -> dict[str, Any]:
        """Have the model on this node; what the node is and has free. Raises as model_here."""
        asked, settings = await model_here(self._spec)
        self._asked = asked
        budget = MemoryTracker(settings).budget(())
        return {
            "node": ray.get_runtime_context().get_node_id(),
            "host": ray.util.get_node_ip_address(),
            "free_bytes": budget.free_bytes,
        }

    async def start(self, rank: int, key: str) -> dict[str, int]:
        """After prepare: start the process; its id, and the port on which it waits for the first
        one. Raises ModelLoadFailed."""
        assert self._asked is not None
        files = self._asked.files
        here = Here(ray.util.get_node_ip_address(), key, files.path, files.backend)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(*RANK_COMMAND, str(rank)), stdin=pipe, stdout=pipe, **child_options()
        )
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(here)).encode() + b"\n")
        try:
            async with asyncio.timeout(START_S):
                port = (await process.stdout.readline()).strip()
        except TimeoutError:
            port = b""
        if not port:
            raise ModelLoadFailed(
                f"process {rank + 1} of the model did not start at {here.host}; the log of Ray's"
                " worker there has its messages"
            )
        return {"pid": process.pid, "port": int(port)}
