"""All models of a daemon: what is installed, and the ways in and out.

Owns the opening and closing of the store and how a client's text becomes an installed model. Knows
no HTTP, and nothing of which models are loaded.
"""

from __future__ import annotations

from modelfile.builtin import seed_builtin
from registry.bundle import Bundle, read_bundle
from registry.shortnames import FILE_NAME as SHORT_NAMES
from registry.shortnames import ShortNames
from registry.store import Store, StoredModel
from runner.library.lookup import find, parse_name
from runner.library.transfers import Transfers
from runner.settings import Settings


class Library:
    """An open store with its transfers. Methods that are not coroutines block on the disk."""

    def __init__(self, store: Store, settings: Settings, version: str) -> None:
        self.store = store
        self.settings = settings
        self.version = version
        self.short_names = ShortNames(settings.data_dir / SHORT_NAMES)
        self.transfers = Transfers(store, settings, version)

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

    def copy(self, source: str, destination: str) -> str:
        """Give a model a second name; returns that name, short. Raises as find, StoreError."""
        target = parse_name(destination)
        self.store.copy(self.find(source).name, target)
        return target.short

    async def close(self) -> None:
        """End all transfers and give the store back."""
        await self.transfers.close()
        self.store.close()
