"""The cluster as the daemon sees it: what is deployed, by which bridge it is reached.

Deployments are Ray's to keep, so that several daemons can be ingresses; what was deployed from here
is kept here as well, and deployed again when a new head knows nothing of it. What another daemon
has changed or ended meanwhile is taken over. Knows no Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from registry.bundle import Bundle
from runner.cluster import cluster_state
from runner.cluster.bridge_client import BridgeClient
from runner.cluster.cluster_state import KeptDeployment
from runner.cluster.cluster_worker import ClusterWorker, ReplicaSource
from runner.cluster.deployment import LOADED, BundleOrigin, Deployment, ReplicaSpec
from runner.cluster.environment import ray_environment
from runner.cluster.fit import NOTHING, Held, Need, NodeFacts, check
from runner.errors import CapacityError, Conflict, HearthError, InsufficientMemory, InvalidRequest
from runner.models.bundle_source import BundleSource
from runner.models.lease import AskedModel
from runner.models.memory_estimate import MemoryEstimate
from runner.models.memory_plan import MemoryBudget, MemoryPlan, plan_memory
from runner.models.placement import Placed, Placement
from runner.models.watchdog import Timeouts
from runner.models.worker import Worker
from runner.settings import Settings
from runner.types import LoadPlan
from runner.worker.json_codec import from_json

log = logging.getLogger("hearth.cluster")

_RESTART_S: Final = 1.0
_MAX_RESTART_S: Final = 15.0
_NOTHING: Final = MemoryEstimate(0, 0, 0)
OnDeployed = Callable[[str], Awaitable[None]]


class Cluster(Placement, ReplicaSource):
    """The cluster of which a node runs on this machine."""

    def __init__(
        self, settings: Settings, library: BundleSource, version: str, on_deployed: OnDeployed
    ) -> None:
        """on_deployed: called with the name of what is deployed anew, which may be loaded."""
        self.on_deployed = on_deployed
        self._settings, self._library, self._version = settings, library, version
        self._state = settings.state_dir
        self._bridge: BridgeClient | None = None
        self._starting = asyncio.Lock()
        self._ready: dict[str, frozenset[str]] = {}
        self._workers: defaultdict[str, set[ClusterWorker]] = defaultdict(set)
        self._tasks: set[asyncio.Task[None]] = set()
        self._updating: set[str] = set()  # see _update
        self._folder = str(settings.models_dir.resolve())
        self._id = ""  # of the cluster
        self._closed = False

    @property
    def bridge(self) -> Path:
        return self._bridge.path if self._bridge is not None else Path("/nonexistent")

    async def place(self, asked: AskedModel) -> Placed | None:
        client = await self._client()
        app = asked.bundle.name.short
        spec = (await self._specs(client)).get(app)
        if spec is None:
            return None
        if spec["origin"]["digest"] != asked.digest and app not in self._updating:
            self._updating.add(app)
            self._keep_task(self._update(client, app, spec, asked.digest))
        plan = from_json(LoadPlan, (await client.call("describe", app=app))["plan"])
        if asked.context_length > plan.max_context_length and asked.request.num_ctx is not None:
            raise InvalidRequest(
                f"num_ctx is {asked.context_length}, and {app} is deployed with a context of"
                f" {plan.max_context_length} tokens; deploy it with a larger --context-length",
                param="num_ctx",
            )

        async def start(name: str, plan: LoadPlan, timeouts: Timeouts) -> Worker:
            return await ClusterWorker(name, plan, timeouts, app, self).start()

        return Placed(MemoryPlan(plan, _NOTHING), start)

    async def _update(
        self, client: BridgeClient, app: str, spec: Mapping[str, Any], digest: str
    ) -> None:
        """Deploy what has been pulled or created again, if it was deployed from here: the old
        replicas answer meanwhile, but the files of which they were made are gone."""
        origin = spec["origin"]
        try:
            here = await client.call("offer", digest=digest)
            if (origin["node"], origin["folder"]) != (here["node"], self._folder):
                log.warning("%s: the cluster has %s, and this machine %s; deploy it to change that",
                            app, origin["digest"][:19], digest[:19])  # fmt: skip
                return
            log.info("%s is another model now: its replicas are replaced", app)
            await self.deploy(Deployment.of(spec["deployment"]))
        except HearthError as error:
            log.error("%s is another model now, but its replicas go on: %s", app, error.message)
        finally:
            self._updating.discard(app)

    def watch(self, app: str, worker: ClusterWorker) -> None:
        self._workers[app].add(worker)
        worker.on_replicas(self._ready.get(app, frozenset()))

    def unwatch(self, app: str, worker: ClusterWorker) -> None:
        self._workers[app].discard(worker)

    async def deploy(self, wanted: Deployment) -> dict[str, Any]:
        """Deploy a model, or change its deployment: replicas that go finish their answers. Raises
        ModelNotFound, and before anything is loaded Conflict and InsufficientMemory with the
        numbers; ModelLoadFailed when no replica can load it."""
        stored = self._library.find(wanted.model)
        bundle = await asyncio.to_thread(self._library.read, stored)
        app = bundle.name.short
        wanted = Deployment.of({**wanted.to_json(), "model": app})
        client = await self._client()
        before = (await self._specs(client)).get(app)
        bundles = await self._check(client, bundle, wanted, before)
        offered = await client.call("offer", digest=str(bundle.digest))
        origin = BundleOrigin(app, str(bundle.digest), folder=self._folder, **offered)
        given = {name: getattr(self._settings, name) for name in LOADED}
        generation = secrets.token_hex(4)
        spec = ReplicaSpec(wanted, origin, self._version, given, generation, bundles)
        deployed = await self._deploy(client, spec)
        await self.on_deployed(app)
        return deployed

    async def _check(
        self,
        client: BridgeClient,
        bundle: Bundle,
        wanted: Deployment,
        before: Mapping[str, Any] | None,
    ) -> int:
        """See fit.check."""
        nodes = [NodeFacts(**facts) for facts in await client.call("nodes")]
        held = NOTHING
        if before is not None and before["deployment"]["cpus"] == wanted.cpus:
            held = Held(before["deployment"]["min_replicas"], ReplicaSpec.of(before).bundles)
        return check(wanted, nodes, self._version, self._need(bundle, wanted), held)

    async def _deploy(self, client: BridgeClient, spec: ReplicaSpec) -> dict[str, Any]:
        app, wire = spec.deployment.model, spec.to_json()
        await client.call("deploy", spec=wire)
        kept = cluster_state.read_deployments(self._state)
        self._keep({**kept, app: KeptDeployment(wire, self._id)})
        least = spec.deployment.min_replicas
        return {"model": app, "digest": spec.origin.digest, "replicas": least}

    def _need(self, bundle: Bundle, wanted: Deployment) -> Need:
        settings = self._settings
        asked = AskedModel.of(bundle, _options(wanted), settings, adapters=True)

        def refusal(free_bytes: int) -> str | None:
            try:
                plan_memory(asked.files, asked.shape, asked.request, MemoryBudget(free_bytes))
            except InsufficientMemory as error:
                return error.message
            return None

        extra = [*bundle.adapters, *(each for each in (bundle.draft, bundle.projector) if each)]
        size = bundle.model_size_bytes + sum(each.size_bytes for each in extra)
        ranks = asked.request.ranks
        return Need(size, refusal if not wanted.gpus else lambda _: None, ranks)

    async def scale(self, model: str, least: int, most: int) -> dict[str, Any]:
        """Change the replicas of a deployment; those that stay go on. Raises Conflict without one,
        and as deploy."""
        before = await self._spec(model)
        counts = {"min_replicas": least, "max_replicas": most}
        wanted = Deployment.of({**before["deployment"], **counts})
        bundle = await asyncio.to_thread(
            lambda: self._library.read(self._library.find(wanted.model))
        )
        client = await self._client()
        await self._check(client, bundle, wanted, before)
        return await self._deploy(client, replace(ReplicaSpec.of(before), deployment=wanted))

    async def undeploy(self, model: str) -> None:
        """End a deployment; what is in flight ends with an error. Raises Conflict without one."""
        app = (await self._spec(model))["deployment"]["model"]
        await (await self._client()).call("undeploy", app=app)
        kept = cluster_state.read_deployments(self._state)
        self._keep({name: each for name, each in kept.items() if name != app})
        self._end(app)

    def _end(self, app: str) -> None:
        """It is not deployed any more."""
        for worker in list(self._workers.pop(app, ())):
            worker.end(CapacityError(f"{app} was undeployed during the request"))
        self._ready.pop(app, None)

    async def status(self) -> dict[str, Any]:
        """Nodes and deployments. Raises CapacityError while the cluster cannot be reached."""
        found: dict[str, Any] = await (await self._client()).call("status")
        return found

    async def close(self) -> None:
        """The daemon stops; the cluster goes on."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._bridge is not None:
            await self._bridge.close()

    async def _spec(self, model: str) -> Mapping[str, Any]:
        specs = await self._specs(await self._client())
        app = model if model in specs else self._library.find(model).name.short
        if app not in specs:
            told = ", ".join(specs) or "nothing is"
            raise Conflict(f"{app} is not deployed; deployed: {told}")
        found: Mapping[str, Any] = specs[app]
        return found

    async def _client(self) -> BridgeClient:
        """The bridge, started where there is none. Raises Conflict, CapacityError."""
        async with self._starting:
            if self._bridge is None or self._bridge.lost:
                if self._bridge is not None:
                    await self._bridge.close()
                self._bridge = await self._start()
                self._id = await self._bridge.call("cluster")
                await self._deploy_again(self._bridge)
                self._keep_task(self._watch_all(self._bridge))
            return self._bridge

    async def _start(self) -> BridgeClient:
        node = cluster_state.read_node(self._state)
        if node is None:
            raise Conflict("this machine is in no cluster; `hearth cluster start` says how")
        environment = {
            **ray_environment(Path(node.token)),
            "RAY_ADDRESS": node.address,
            "HEARTH_BUNDLE_PORT": str(node.bundle_port),
            "HEARTH_MODELS": str(self._settings.models_dir),
            "HEARTH_CLUSTER_SILENCE": str(self._settings.cluster_silence),
        }
        return await BridgeClient.start(environment, self._on_replicas, self._on_lost)

    async def _watch_all(self, client: BridgeClient) -> None:
        """Have the bridge say which replicas there are of what is in use."""
        for app in list(self._workers):
            with contextlib.suppress(HearthError):
                await client.call("describe", app=app)

    async def _specs(self, client: BridgeClient) -> Mapping[str, Any]:
        """All deployments. What is kept here becomes what other daemons have made of it."""
        known: Mapping[str, Any] = await client.call("specs")
        kept = cluster_state.read_deployments(self._state)
        if (now := cluster_state.merged(kept, known, self._id)) != kept:
            self._keep(now)
        return known

    async def _deploy_again(self, client: BridgeClient) -> None:
        """Deploy what a new head does not know."""
        known = await self._specs(client)
        for app, kept in cluster_state.read_deployments(self._state).items():
            if app not in known:
                log.warning("the cluster does not know %s: it is deployed again", app)
                self._keep_task(self._deploy_kept(client, kept.spec))

    async def _deploy_kept(self, client: BridgeClient, spec: dict[str, Any]) -> None:
        try:
            offered = await client.call("offer", digest=spec["origin"]["digest"])
            spec = {**spec, "origin": {**spec["origin"], **offered}}
            await self._deploy(client, ReplicaSpec.of(spec))
        except HearthError as error:
            log.error("%s", error.message)

    def _on_replicas(self, app: str, replicas: frozenset[str]) -> None:
        self._ready[app] = replicas
        for worker in list(self._workers.get(app, ())):
            worker.on_replicas(replicas)
        if self._bridge is not None and not replicas and self._workers.get(app):
            self._keep_task(self._end_undeployed(self._bridge, app))

    async def _end_undeployed(self, client: BridgeClient, app: str) -> None:
        """Its last replica has gone: end it here if another daemon has undeployed it, but not where
        a new head is about to be told of it."""
        with contextlib.suppress(HearthError):
            known = await self._specs(client)
            if app not in known and app not in cluster_state.read_deployments(self._state):
                self._end(app)

    def _on_lost(self) -> None:
        """The bridge has ended, and with it all sessions."""
        log.warning("the connection to the cluster was lost")
        for app in list(self._ready):
            self._on_replicas(app, frozenset())
        if not self._closed and any(self._workers.values()):
            self._keep_task(self._restart())

    async def _restart(self) -> None:
        wait_s = _RESTART_S
        while not self._closed and any(self._workers.values()):
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _MAX_RESTART_S)
            try:
                await self._client()
            except HearthError as error:
                log.warning("%s", error.message)
                continue
            return

    def _keep(self, kept: Mapping[str, KeptDeployment]) -> None:
        try:
            cluster_state.write_deployments(self._state, kept)
        except OSError as error:
            log.error("the deployments could not be kept: %s", error.strerror)

    def _keep_task(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _options(wanted: Deployment) -> dict[str, Any]:
    given = {"num_ctx": wanted.context_length, "num_parallel": wanted.num_parallel}
    return {name: value for name, value in given.items() if value is not None}
