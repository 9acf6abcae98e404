"""The pulls and pushes of the daemon: one of each model at a time, for all who ask for it.

Owns their start, what they share (the limit, the credentials) and their end. What speaks HTTP to
registries is imported with the first of them, in a thread: a daemon that serves installed models
does without.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import psutil

from modelfile.build import build
from modelfile.description import Description
from registry.auth.credentials import Credential, Credentials, docker_config
from registry.digest import Digest
from registry.errors import Offline, RemoteRefused
from registry.hosts.references import Reference
from registry.names import Name
from registry.pull import PullState, pull
from registry.store import Store
from registry.transfer.download import Rules
from registry.transfer.fetching import Fetcher
from registry.transfer.pace import Limit
from registry.transfer.sharing import Shared, Sharing
from runner.settings import Settings

Job = Shared[PullState]


@dataclass(frozen=True, slots=True)
class Access:
    """What a host may need of this machine: credentials, the files of Ollama's key, and the
    memory that models may use."""

    credentials: Credentials
    key_files: tuple[Path, ...]
    memory_bytes: int


class Transfers:
    """What is being pulled and pushed."""

    def __init__(self, store: Store, settings: Settings, version: str) -> None:
        self._store = store
        self._settings = settings
        self._agent = f"hearth/{version}"
        self._limit = Limit(settings.transfer_rate)
        self._fetcher = Fetcher(store, Rules(self._limit))
        self._sharing: Sharing[PullState] = Sharing()
        self.credentials = Credentials(settings.data_dir / "auth.json", docker_config())

    def pull(self, reference: Reference, insecure: bool) -> Job:
        """Join the pull of a model, or begin it. Give it back with leave. Raises Offline."""
        self._require_network(f"pull {reference.name.short}")

        async def run(state: PullState) -> None:
            hosts = await _hosts()
            async with hosts.Web(self._agent, insecure) as web:
                host = hosts.host_for(web, reference, self._access())
                await pull(host, self._fetcher, state, self._build)

        return self._sharing.join(f"pull {insecure} {reference.key}", PullState, run)

    def push(self, reference: Reference, insecure: bool) -> Job:
        """Join the push of a model, or begin it. Give it back with leave. Raises Offline,
        RemoteRefused for hosts that take none."""
        self._require_network(f"push {reference.name.short}")
        if reference.kind != "oci" or reference.digest is not None:
            raise RemoteRefused(
                f"{reference.name.short} cannot be pushed: models go to a registry, under a name "
                "such as host/namespace/model:tag"
            )

        async def run(state: PullState) -> None:
            hosts = await _hosts()
            async with hosts.Web(self._agent, insecure) as web:
                target = hosts.destination(web, reference, self._access())
                await hosts.push(self._store, reference.name, target, self._limit, state)

        return self._sharing.join(f"push {insecure} {reference.key}", PullState, run)

    async def leave(self, job: Job) -> None:
        """Wait for it no longer; what nobody waits for is cancelled."""
        await self._sharing.leave(job)

    async def login(self, host: str, credential: Credential, insecure: bool) -> None:
        """Keep a credential that the registry accepts. Raises Offline, RemoteError, StoreFault."""
        self._require_network(f"log in to {host}")
        hosts = await _hosts()
        async with hosts.Web(self._agent, insecure) as web:
            await hosts.check_login(web, host, credential)
        await asyncio.to_thread(self.credentials.save, host, credential)

    def cancel_all(self) -> None:
        """End everything; what has arrived stays."""
        self._sharing.cancel_all()

    async def close(self) -> None:
        """End everything and wait for it."""
        await self._sharing.close()

    def _require_network(self, what: str) -> None:
        if self._settings.offline:
            raise Offline(what)

    def _access(self) -> Access:
        limit, total = self._settings.memory_limit, int(psutil.virtual_memory().total)
        keys = (Path.home() / ".ollama" / "id_ed25519", self._settings.data_dir / "id_ed25519")
        return Access(self.credentials, keys, min(limit, total) if limit else total)

    async def _build(self, name: Name, digests: dict[str, Digest]) -> None:
        """Make a model of files, as a Modelfile with nothing but FROM would."""
        await asyncio.to_thread(lambda: list(build(self._store, Description(name, files=digests))))


async def _hosts() -> ModuleType:
    """What speaks to registries; the first import takes a good part of a second."""
    return await asyncio.to_thread(import_module, "runner.server.hosts")
