"""The model that a pulled adapter is for: one that is installed, or the one on the Hub.

The rule: an adapter names a repository of the Hub. A model that is installed from there, under any
tag, is taken; otherwise it is pulled, where this machine's memory holds its weights, which is said
before. What is no repository, or cannot be had, is an error that names the other way: a Modelfile.
Owns this rule and its words. Makes nothing itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from modelfile.errors import ModelfileError
from registry.errors import (
    InvalidGguf,
    InvalidName,
    InvalidSafetensors,
    RegistryError,
    RemoteError,
    RemoteMissing,
    RemoteRefused,
)
from registry.hosts.host import Host, RemoteModel
from registry.hosts.references import Reference, parse
from registry.manifest import ADAPTER_TYPE
from registry.names import Name
from registry.pull import PullState
from registry.store import Store
from registry.transfer.shared_task import SharedTask
from runner.errors import RequestError
from runner.library.transfer_progress import wait_for_pull

_UNUSABLE = (RemoteError, ModelfileError, InvalidGguf, InvalidSafetensors, RequestError)


@dataclass(frozen=True, slots=True)
class BaseModels:
    """Where the models that adapters are for come from. pull joins the pull of one, leave gives
    it back."""

    store: Store
    pull: Callable[[Reference], SharedTask[PullState]]
    leave: Callable[[SharedTask[PullState]], Awaitable[None]]

    async def find(self, adapter: Name, repo: str | None, state: PullState) -> Name:
        """The installed model of the repository that an adapter is for; it is pulled when there
        is none, shown in the adapter's state.

        Raises RemoteMissing with the Modelfile that would do when it cannot be had, StoreError.
        """
        if repo is None:
            raise RemoteMissing(
                f"{adapter.short} is an adapter and names no repository of the model that it is "
                f"for. {_other_way(adapter, 'that model')}"
            )
        try:
            reference = parse(f"hf.co/{repo}")
        except InvalidName as error:
            raise RemoteMissing(f"{error.message}. {_other_way(adapter, repo)}") from None
        found = await asyncio.to_thread(self._installed, reference.name)
        if found is not None:
            state.steps.append(
                f"using the installed model {found.short} as the base of the adapter"
            )
            return found
        state.steps.append(f"the adapter requires {repo}, which is pulled too")
        try:
            return await self._pulled(reference, state)
        except _UNUSABLE as error:
            raise RemoteMissing(
                f"{adapter.short} is an adapter for {repo}, which cannot be had: {error.message}. "
                f"{_other_way(adapter, repo)}"
            ) from error

    def _installed(self, wanted: Name) -> Name | None:
        """The model of the repository that is whole and has no adapter of its own, the one
        without a tag first. Blocks on the disk."""
        same = [name for name in self.store.names() if name.folded[:3] == wanted.folded[:3]]
        for name in sorted(same, key=lambda name: (name.folded != wanted.folded, name)):
            try:
                stored = self.store.get(name)
                if stored.fault is None and not stored.manifest.of_type(ADAPTER_TYPE):
                    return name
            except RegistryError:
                continue
        return None

    async def _pulled(self, reference: Reference, state: PullState) -> Name:
        transfer = self.pull(reference)
        shown = 0

        async def show() -> None:
            nonlocal shown
            news = transfer.state.steps[shown:]
            shown += len(news)
            state.steps.extend(step for step in news if step != "success")

        try:
            return await wait_for_pull(transfer, show)
        finally:
            await self.leave(transfer)


@dataclass(frozen=True, slots=True)
class BaseHost:
    """A host of which only a model is taken that an adapter can be put on here."""

    host: Host
    memory_bytes: int

    async def resolve(self) -> RemoteModel:
        """See registry.hosts.host.Host. Raises RemoteRefused for another adapter, and for what
        is larger than the memory."""
        remote = await self.host.resolve()
        if remote.made_type == ADAPTER_TYPE:
            raise RemoteRefused(f"{remote.name.short} is an adapter itself")
        size = sum(file.size_bytes for file in remote.files if file.role == "weights")
        if size > self.memory_bytes:
            raise RemoteRefused(
                f"{remote.name.short} has {size / 2**30:.1f} GiB of weights, and models may use "
                f"{self.memory_bytes / 2**30:.1f} GiB of memory here; a quantization may fit"
            )
        return remote


def _other_way(adapter: Name, model: str) -> str:
    return (
        f"With {model} installed under another name, download the files of {adapter.short}, write "
        '"FROM <that name>" and "ADAPTER <the folder of the files>" into a Modelfile, and run: '
        "hearth create"
    )
