"""Where the manager gets models from."""

from __future__ import annotations

from typing import Protocol

from registry.bundle import Bundle
from registry.store import StoredModel


class BundleSource(Protocol):
    """The installed models by the names that clients write. runner.library.library is one."""

    def find(self, name: str) -> StoredModel:
        """The installed model. Raises InvalidRequest, ModelNotFound with near names,
        ModelInvalid."""

    def read(self, stored: StoredModel) -> Bundle:
        """A model ready to be loaded. Blocks on the disk. Raises RegistryError."""
