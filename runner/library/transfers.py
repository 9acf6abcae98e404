"""The pulls and pushes of the daemon: one of each model at a time, for all who ask for it.

Owns their start, what they share (the limit, the credentials) and their end. What speaks HTTP to
registries is imported with the first of them, in a thread: a daemon that serves installed models
does without.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil

from registry.auth.credentials import Credential, Credentials, docker_config
from registry.errors import Offline, RemoteRefused
from registry.hosts.host import HostAccess
from registry.hosts.references import Reference
from registry.manifest import ADAPTER_TYPE
from registry.names import Name
from registry.pull import ModelBuilder, PullState, pull
from registry.records import BlobOrigin
from registry.store import Store
from registry.transfer.download import BlobProgress, DownloadOptions
from registry.transfer.fetcher import Fetcher
from registry.transfer.rate import RateLimit
from registry.transfer.shared_task import SharedTask, SharedTasks
from runner.library.base_models import BaseHost, BaseModels
from runner.library.blob_sources import LostBlob
from runner.library.model_builder import WithoutKernels, kernels_take_part, model_builder
from runner.settings import Settings

if TYPE_CHECKING:
    from registry.hosts.http.client import HttpClient

Transfer = SharedTask[PullState]


@dataclass(frozen=True, slots=True)
class Reach:
    """What a transfer may touch for the client that asked for it. private: addresses that are not
    public; without it only hosts that the settings name. paths: files of this machine."""

    private: bool = False
    paths: bool = False


@dataclass(frozen=True, slots=True)
class _PullRequest:
    """A pull. is_base: of the model that an adapter is for. name: see registry.pull.pull."""

    reference: Reference
    reach: Reach
    insecure: bool = False
    is_base: bool = False
    name: Name | None = None


class Transfers:
    """What is being pulled and pushed."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        version: str,
        without_kernels: WithoutKernels = kernels_take_part,
    ) -> None:
        """without_kernels: see Library."""
        self._without_kernels = without_kernels
        self._store = store
        self._settings = settings
        self._agent = f"hearth/{version}"
        self._limit = RateLimit(settings.transfer_rate)
        self._fetcher = Fetcher(store, DownloadOptions(self._limit))
        self._tasks: SharedTasks[PullState] = SharedTasks()
        self.credentials = Credentials(settings.data_dir / "auth.json", docker_config())

    def pull(
        self, reference: Reference, reach: Reach, insecure: bool, name: Name | None = None
    ) -> Transfer:
        """Join the pull of a model, to be called name, or begin it. Give it back with leave. Raises
        Offline."""
        if not reference.kind.is_local:
            self._require_network(f"pull {reference.name.short}")
        bases = BaseModels(self._store, partial(self._pull_base, reach), self.leave)
        builder = model_builder(self._store, bases.find, self._without_kernels)
        request = _PullRequest(reference, reach, insecure, name=name)

        async def run(state: PullState) -> None:
            await self._pull(request, builder, state)

        key = f"pull {insecure} {reach.private} {reference.key} {name}"
        return self._tasks.join(key, PullState, run)

    def _pull_base(self, reach: Reach, reference: Reference) -> Transfer:
        """Join the pull of a model for an adapter. One of its own, so that two adapters that name
        one another do not wait for one another; the files are fetched once all the same."""
        builder = model_builder(self._store)

        async def run(state: PullState) -> None:
            await self._pull(_PullRequest(reference, reach, is_base=True), builder, state)

        return self._tasks.join(f"pull base {reach.private} {reference.key}", PullState, run)

    async def _pull(self, request: _PullRequest, builder: ModelBuilder, state: PullState) -> None:
        access = self._access()
        async with await self._client(request.insecure, request.reach) as client:
            open_host, reference = request.reference.kind.open, request.reference
            host = await asyncio.to_thread(open_host, reference, client, access)
            host = BaseHost(host, access.memory_bytes) if request.is_base else host
            await pull(host, self._fetcher, state, builder, request.name)
        await asyncio.to_thread(self._note_origin, request, state)

    def push(self, reference: Reference, reach: Reach, insecure: bool) -> Transfer:
        """Join the push of a model, or begin it. Give it back with leave. Raises Offline,
        RemoteRefused for hosts that take none."""
        self._require_network(f"push {reference.name.short}")
        if not reference.kind.is_registry or reference.digest is not None:
            raise RemoteRefused(
                f"{reference.name.short} cannot be pushed: its name must begin with a registry, "
                "such as host/namespace/model:tag"
            )

        async def run(state: PullState) -> None:
            async with await self._client(insecure, reach) as client:
                from runner.library.hosts import open_repository, push

                repository = open_repository(client, reference, self._access())
                await push(self._store, reference.name, repository, self._limit, state)

        return self._tasks.join(f"push {insecure} {reach.private} {reference.key}", PullState, run)

    def refetch(self, lost: LostBlob, reach: Reach) -> Transfer:
        """Fetch a damaged blob again, or join that; the task's result says where it came from.
        Give it back with leave. Raises Offline."""
        self._require_network(f"fetch blob {lost.digest.short} again")

        async def run(state: PullState) -> str:
            await _import("runner.library.refetch")
            from runner.library.refetch import RefetchContext, refetch

            open_client = partial(self._client, reach=reach)
            context = RefetchContext(open_client, reach.paths, self._access(), self._fetcher, state)
            return await refetch(context, lost)

        key = f"refetch {reach.private} {reach.paths} {lost.digest}"
        return self._tasks.join(key, PullState, run)

    async def leave(self, transfer: Transfer) -> None:
        """Wait for it no longer; what nobody waits for is cancelled."""
        await self._tasks.leave(transfer)

    async def discard(self, state: PullState) -> None:
        """Remove what a pull that has ended has brought and no model uses, unless another pull is
        fetching it. Raises StoreError."""
        for step in state.steps:
            if isinstance(step, BlobProgress):
                await self._fetcher.discard(step)

    async def login(self, host: str, credential: Credential, reach: Reach, insecure: bool) -> None:
        """Keep a credential that the registry accepts. Raises Offline, RemoteError, StoreFault."""
        self._require_network(f"log in to {host}")
        async with await self._client(insecure, reach) as client:
            from runner.library.hosts import check_login

            await check_login(client, host, credential)
        await asyncio.to_thread(self.credentials.save, host, credential)

    def cancel_all(self) -> None:
        """End everything; what has arrived stays."""
        self._tasks.cancel_all()

    async def close(self) -> None:
        """End everything and wait for it."""
        await self._tasks.close()

    async def _client(self, insecure: bool, reach: Reach) -> HttpClient:
        """A client for one transfer, still to be entered."""
        await _import("runner.library.hosts")
        from runner.library.hosts import HttpClient

        hub = urlsplit(os.environ.get("HF_ENDPOINT", "")).netloc.rpartition("@")[2]
        named = (*self._settings.private_registries, *((hub,) if hub else ()))
        return HttpClient(self._agent, insecure, private_hosts=None if reach.private else named)

    def _require_network(self, what: str) -> None:
        if self._settings.offline:
            raise Offline(what)

    def _note_origin(self, request: _PullRequest, state: PullState) -> None:
        """Keep with the blobs from where they came, for the day on which one is damaged."""
        reference = request.reference
        if reference.repo is not None and state.file is not None:
            reference = replace(reference, selector=state.file)
        if state.name is None or reference.text is None:
            return
        origin = BlobOrigin(reference.text, request.insecure)
        if state.made_type != ADAPTER_TYPE:
            self._store.keep_origin(state.name, origin)
        if state.made_type is not None:
            made = replace(origin, recipe=state.recipe)
            self._store.keep_origin(state.name, made, state.made_type)

    def _access(self) -> HostAccess:
        limit, total = self._settings.memory_limit, int(psutil.virtual_memory().total)
        keys = (Path.home() / ".ollama" / "id_ed25519", self._settings.data_dir / "id_ed25519")
        return HostAccess(self.credentials, keys, min(limit, total) if limit else total)


async def _import(module: str) -> None:
    """Import what speaks HTTP in a thread: the first time takes a good part of a second."""
    await asyncio.to_thread(import_module, module)
