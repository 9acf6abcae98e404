"""What the bridge does with Ray: nodes, deployments, handles. Imported by the bridge only."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import shutil
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import ray
import uvicorn
from ray import serve
from ray._private.state import available_resources_per_node
from ray.serve.schema import ApplicationStatus
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from registry.store import Store
from runner.cluster import deployed_specs, membership
from runner.cluster.app import DEPLOYMENT, build
from runner.cluster.bundle_server import BundleServer
from runner.cluster.deployment import ReplicaSpec
from runner.cluster.fit import VERSION_LABEL, NodeFacts
from runner.cluster.token import bundle_token
from runner.errors import Conflict, HearthError, ModelLoadFailed
from runner.models.system_memory import available_bytes
from runner.settings import load

DESCRIBE_S: Final = 300.0  # the first replica may have to fetch and load its model
STATUS_S: Final = 5.0
PROBE_S: Final = 60.0  # Ray may have to start a process


class ClusterCalls:
    """One connection to Ray. Made by connect."""

    def __init__(self) -> None:
        settings = load()
        self._handles: dict[str, Any] = {}
        self._bundles = BundleServer(Store.open(settings.models_dir, True), bundle_token())
        self._url = ""
        self._serving: asyncio.Task[None] | None = None

    @classmethod
    def connect(cls) -> ClusterCalls:
        """Connect to the node that runs on this machine. Blocks. Raises Conflict."""
        try:
            ray.init(address="auto", namespace="hearth", log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError) as error:
            raise Conflict(f"no node of a cluster runs on this machine: {error}") from None
        serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})
        return cls()

    async def open_server(self) -> None:
        """Serve bundles at the address that Ray knows this node by."""
        host = ray.util.get_node_ip_address()
        port = int(os.environ.get("HEARTH_BUNDLE_PORT", "0"))
        config = uvicorn.Config(
            self._bundles.app(), host=host, port=port, log_config=None, lifespan="off"
        )
        server = uvicorn.Server(config)
        try:
            sock = socket.create_server((host, port))
        except OSError:  # another daemon of this machine has it
            sock = socket.create_server((host, 0))
        self._url = f"http://{host}:{sock.getsockname()[1]}"
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._serving = asyncio.create_task(server._serve([sock]))
        for spec in (await self.specs()).values():
            with contextlib.suppress(HearthError):
                self._bundles.offer(spec["origin"]["digest"])

    def listen(self, listener: Callable[[str, frozenset[str]], None]) -> None:
        """See runner.cluster.membership."""
        membership.listen(listener)

    async def handle(self, app: str) -> Any:
        """The handle of a deployment. Raises Conflict where there is none."""
        if app not in self._handles:
            try:
                handle = await asyncio.to_thread(serve.get_app_handle, app)
            except Exception as error:
                raise Conflict(f"{app} is not deployed: {error}"[:300]) from None
            self._handles[app] = handle.options()  # which makes the router, too
        return self._handles[app]

    async def call(self, op: str, values: Mapping[str, Any]) -> Any:
        """Do what a frame of the daemon asks for. Raises HearthError, and what Ray raises."""
        known: dict[str, Callable[..., Any]] = {
            "nodes": self.nodes,
            "deploy": self.deploy,
            "undeploy": self.undeploy,
            "specs": self.specs,
            "describe": self.describe,
            "status": self.status,
            "offer": self.offer,
            "cluster": self.cluster,
        }
        return await known[op](**values)

    async def nodes(self) -> list[dict[str, Any]]:
        """Facts of all nodes, measured there."""
        alive = await self._alive()
        told = await asyncio.gather(*(_measured(facts) for facts in alive))
        return [facts.to_json() for facts in told]

    async def _alive(self) -> list[NodeFacts]:
        """The nodes that Ray knows, as it knows them."""
        free = await asyncio.to_thread(available_resources_per_node)
        nodes = await asyncio.to_thread(ray.nodes)
        return [_facts(node, free.get(node["NodeID"], {})) for node in nodes if node["Alive"]]

    async def offer(self, digest: str) -> dict[str, str]:
        """Serve a model to the nodes; the address of the server, and this node's id."""
        await asyncio.to_thread(self._bundles.offer, digest)
        return {"url": self._url, "node": ray.get_runtime_context().get_node_id()}

    async def cluster(self) -> str:
        """See deployed_specs.cluster_id."""
        return await asyncio.to_thread(deployed_specs.cluster_id)

    async def deploy(self, spec: Mapping[str, Any]) -> None:
        """Start or update a deployment. Raises ModelLoadFailed with what the replicas say."""
        checked = ReplicaSpec.of(spec)
        app = checked.deployment.model
        before = (await self.specs()).get(app)
        try:
            await asyncio.to_thread(
                serve.run, build(checked.to_json()), name=app, route_prefix=None
            )
        except RuntimeError as error:
            if before is None:
                await self.undeploy(app)
            raise ModelLoadFailed(await self._why(app, error)) from None
        await self.handle(app)

    async def _why(self, app: str, error: RuntimeError) -> str:
        text = str(error)
        with contextlib.suppress(Exception):
            status = (await asyncio.to_thread(serve.status)).applications[app]
            text = status.deployments[DEPLOYMENT].message or status.message
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        own = [line for line in lines if line.startswith(("runner.errors.", "registry.errors."))]
        return f"{app} was not deployed: {(own or lines or ['unknown'])[-1]}"[:1000]

    async def undeploy(self, app: str) -> None:
        """End a deployment; its answers in flight fail."""
        await asyncio.to_thread(deployed_specs.delete, app)
        self._handles.pop(app, None)
        await asyncio.to_thread(serve.delete, app)

    async def specs(self) -> dict[str, Any]:
        """Those of the deployments that Serve has, whoever made them."""
        return {app: spec for app, (spec, _) in (await self._deployed()).items()}

    async def _deployed(self) -> dict[str, tuple[Any, Any]]:
        """Their specs, and what Serve says of each."""
        kept = await asyncio.to_thread(deployed_specs.read_all)
        told = (await asyncio.to_thread(serve.status)).applications
        return {
            app: (spec, told[app])
            for app, spec in kept.items()
            if app in told and told[app].status != ApplicationStatus.DELETING
        }

    async def describe(self, app: str) -> Any:
        """What any replica says. Raises ModelLoadFailed when none starts in time."""
        handle = await self.handle(app)
        call = handle.options(method_name="describe").remote("")
        try:
            async with asyncio.timeout(DESCRIBE_S):
                return await call
        except TimeoutError:
            raise ModelLoadFailed(f"no replica of {app} started in {DESCRIBE_S:g} s") from None

    async def status(self) -> dict[str, Any]:
        """Nodes, and for each deployment what Serve thinks of it and what its replicas say."""
        apps = {
            app: {
                "spec": spec,
                "status": str(told.status.value),
                "message": told.message,
                "replicas": await self._replicas(app),
            }
            for app, (spec, told) in (await self._deployed()).items()
        }
        nodes = [facts.to_json() for facts in await self._alive()]
        return {"nodes": nodes, "deployments": apps}

    async def _replicas(self, app: str) -> list[Any]:
        """What those that are ready say, without the ones that do not answer in time."""
        with contextlib.suppress(HearthError):
            handle = await self.handle(app)
            describe = handle.options(method_name="describe").remote
            calls = (_in_time(describe(replica)) for replica in sorted(membership.ready(app)))
            told = await asyncio.gather(*calls, return_exceptions=True)
            return [each for each in told if not isinstance(each, BaseException)]
        return []


async def _in_time(call: Awaitable[Any]) -> Any:
    async with asyncio.timeout(STATUS_S):
        return await call


def _facts(node: Mapping[str, Any], free: Mapping[str, Any]) -> NodeFacts:
    return NodeFacts(
        id=node["NodeID"],
        address=node["NodeManagerAddress"],
        version=node.get("Labels", {}).get(VERSION_LABEL, ""),
        cpus=node["Resources"].get("CPU", 0.0),
        gpus=node["Resources"].get("GPU", 0.0),
        free_cpus=free.get("CPU", 0.0),
        free_gpus=free.get("GPU", 0.0),
        memory_bytes=0,
        disk_bytes=0,
        is_head="node:__internal_head__" in node["Resources"],
        is_own=node["NodeID"] == ray.get_runtime_context().get_node_id(),
    )


async def _measured(facts: NodeFacts) -> NodeFacts:
    """With the memory and the disk of the node, 0 of one that does not answer."""
    strategy = NodeAffinitySchedulingStrategy(facts.id, soft=False)
    asked = ray.remote(_probe).options(num_cpus=0, scheduling_strategy=strategy).remote()
    with contextlib.suppress(Exception):
        async with asyncio.timeout(PROBE_S):
            return replace(facts, **await asked)
    return facts


def _probe() -> dict[str, Any]:
    """On the node."""
    folder = load().data_dir
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "version": importlib.metadata.version("hearth"),
        "memory_bytes": available_bytes(),
        "disk_bytes": shutil.disk_usage(folder).free,
    }
