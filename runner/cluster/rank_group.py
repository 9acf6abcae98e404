"""The processes of a replica's model but the first, where they are on several nodes: each in a
bundle of the placement group that Serve has made for the replica."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from runner.cluster.deployment import ReplicaSpec
from runner.cluster.rank_host import RankHost
from runner.errors import HearthError, ModelLoadFailed
from runner.worker.rank_network import RankNetwork, new_key

PREPARE_S: Final = 3600.0  # a node may have to fetch the model


class RankGroup:
    """Made by prepared."""

    def __init__(self, hosts: list[Any], told: list[dict[str, Any]]) -> None:
        self._hosts = hosts
        self._told = told
        self._pids: list[int] = []

    @classmethod
    async def prepared(cls, spec: ReplicaSpec) -> RankGroup:
        """The nodes of the others, once they have the model. Raises what they report,
        ModelLoadFailed when a node does not answer."""
        group = ray.util.get_current_placement_group()
        strategy = PlacementGroupSchedulingStrategy(group)
        cpus = spec.deployment.cpus // spec.bundles
        options = {"num_cpus": cpus, "scheduling_strategy": strategy, "max_restarts": 0}
        made = ray.remote(RankHost).options(**options)
        hosts = [made.remote(spec.to_json()) for _ in range(1, spec.bundles)]
        made_group = cls(hosts, [])
        try:
            calls = [host.prepare.remote() for host in hosts]
            made_group._told = await _answers(calls, PREPARE_S)
        except BaseException:
            made_group.end()
            raise
        return made_group

    def free_bytes(self, own: int) -> int:
        """The memory for the whole model: as if every process had no more than the one that has
        least, where those of a node share what that has free. own: free on this node."""
        here = ray.get_runtime_context().get_node_id()
        free = {here: own} | {each["node"]: each["free_bytes"] for each in self._told}
        count = Counter([here, *(each["node"] for each in self._told)])
        least: int = min(free[node] // count[node] for node in count)
        return least * count.total()

    async def start(self) -> RankNetwork:
        """Start the processes, which then wait for the first one. Raises ModelLoadFailed."""
        key = new_key()
        calls = [host.start.remote(rank, key) for rank, host in enumerate(self._hosts, start=1)]
        started = await _answers(calls, PREPARE_S)
        self._pids = [each["pid"] for each in started]
        addresses = zip(self._told, started, strict=True)
        return RankNetwork(
            ray.util.get_node_ip_address(),
            tuple((node["host"], each["port"]) for node, each in addresses),
            key,
        )

    def describe(self) -> list[dict[str, Any]]:
        """Where each process is."""
        pairs = zip(self._told, self._pids, strict=True)
        return [{"node": node["node"], "pid": pid} for node, pid in pairs]

    def end(self) -> None:
        """End the processes."""
        for host in self._hosts:
            ray.kill(host)


async def _answers(calls: list[Any], limit_s: float) -> list[Any]:
    try:
        async with asyncio.timeout(limit_s):
            return list(await asyncio.gather(*calls))
    except TimeoutError:
        raise ModelLoadFailed(f"a node of the model did not answer in {limit_s:g} s") from None
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, HearthError):
            raise error.cause from None
        raise ModelLoadFailed(f"a node cannot run a process of the model: {error}") from None
    except ray.exceptions.RayError as error:
        raise ModelLoadFailed(f"a node of the model was lost: {error}") from None
