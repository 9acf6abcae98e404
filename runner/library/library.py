"""All models of a daemon: what is installed, and the ways in and out.

Owns the opening and closing of the store and how a client's text becomes an installed model. Knows
no HTTP, and nothing of which models are loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from modelfile.builtin import seed_builtin
from registry.auth.credentials import Credential
from registry.bundle import Bundle, read_bundle
from registry.names import Name, is_valid_part
from registry.shortnames import FILE_NAME as SHORT_NAMES
from registry.shortnames import ShortNames
from registry.store import Store, StoredModel
from runner.errors import InvalidRequest
from runner.library.lookup import find, parse_name
from runner.library.transfers import Reach, Transfers
from runner.settings import Settings, source


class Library:
    """An open store with its transfers. Methods that are not coroutines block on the disk.
    on_change: called with a name, short, that means nothing or another model from now on. uses_gpu:
    whether llama.cpp does."""

    on_change: Callable[[str], Awaitable[None]]
    uses_gpu: Callable[[], Awaitable[bool]]

    def __init__(self, store: Store, settings: Settings, version: str) -> None:
        self.store = store
        self.settings = settings
        self.version = version
        self.short_names = ShortNames(settings.data_dir / SHORT_NAMES)
        self.transfers = Transfers(store, settings, version, self.without_kernels)
        self.on_change = _none_loaded
        self.uses_gpu = _no_gpu

    @classmethod
    def open(cls, settings: Settings, version: str) -> Library:
        """The library in the settings' folder. Raises StoreLocked when another process owns it,
        StoreFault."""
        return cls(Store.open(settings.models_dir), settings, version)

    @property
    def read_only(self) -> bool:
        """True when this user cannot write to the store."""
        return self.store.read_only

    def seed(self) -> None:
        """Install the models that come with hearth, where the store can be written to."""
        if not self.read_only:
            seed_builtin(self.store)

    def models(self) -> list[StoredModel]:
        """Every model, newest first; damaged ones with their fault."""
        return self.store.models()

    def find(self, name: str) -> StoredModel:
        """The installed model of that name or short name. Raises InvalidRequest, ModelNotFound
        with near names, ModelInvalid when its files are damaged."""
        return find(self.store, name, self.short_names)

    def read(self, stored: StoredModel) -> Bundle:
        """A model ready to be loaded. Raises RegistryError when its files are damaged."""
        return read_bundle(self.store, stored)

    async def copy(self, source: str, destination: str) -> None:
        """Give a model a second name. Raises as find, StoreError."""
        found, target = self.find(source).name, parse_name(destination)
        await asyncio.to_thread(self.store.copy, found, target)
        await self.on_change(target.short)

    async def delete(self, text: str) -> Name:
        """Remove a model; a damaged one too. Gives its name. Who has it loaded hears of it before,
        and again afterwards, for it may have come back while its files were going. Raises
        InvalidRequest, ModelMissing, StoreError."""
        name = self.store.get(parse_name(text)).name
        if not self.read_only:
            await self.on_change(name.short)
        await asyncio.to_thread(self.store.delete, name)
        await self.on_change(name.short)
        return name

    async def login(
        self, host: str, username: str, password: str, *, reach: Reach, insecure: bool
    ) -> None:
        """Keep a name and a password that the registry at host accepts. Raises InvalidRequest,
        Offline, RemoteError, StoreFault."""
        _check_host(host)
        for field, value in (("username", username), ("password", password)):
            if not value or not value.isprintable():
                raise InvalidRequest(
                    f"{field} is empty or contains unprintable characters", param=field
                )
        if ":" in username:
            raise InvalidRequest("username must not contain ':'", param="username")
        await self.transfers.login(host, Credential(username, password), reach, insecure)

    async def logout(self, host: str) -> bool:
        """Forget what login kept; False when there was nothing. Raises InvalidRequest,
        StoreFault."""
        _check_host(host)
        return await asyncio.to_thread(self.transfers.credentials.remove, host)

    async def without_kernels(self) -> str | None:
        """Why hearth's kernels take no part on llama.cpp, as far as that is known before a load."""
        if not self.settings.native_kernels:
            return f"{source('native_kernels')} switches them off"
        return "llama.cpp uses a GPU" if await self.uses_gpu() else None

    async def close(self) -> None:
        """End all transfers and give the store back."""
        await self.transfers.close()
        self.store.close()


async def _none_loaded(name: str) -> None:
    """No model is loaded."""


async def _no_gpu() -> bool:
    """There is none."""
    return False


def _check_host(host: str) -> None:
    if not is_valid_part("host", host):
        raise InvalidRequest(
            "host is not that of a registry; use one such as registry.example.com", param="host"
        )
