"""What every kind of host provides: a model's manifest or files, and byte ranges of its content.

Owns the shared types. Knows neither HTTP nor the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from registry.auth.credentials import Credentials
from registry.digest import Digest
from registry.manifest import ADAPTER_TYPE, MODEL_TYPE, Manifest
from registry.names import Name

Role = Literal["weights", "projector", "adapter", "license", "template"]


class RangeSource(Protocol):
    """Content that can be read in ranges."""

    def read(
        self, start: int, stop: int
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes | bytearray]]:
        """The bytes from start to before stop, as they arrive; possibly fewer or more than
        requested: the reader counts.

        Raises RangesIgnored, RemoteError; RetryLater for what may work the next time.
        """


class RetryLater(Exception):
    """A request failed in a way that may pass. after_s: how long the server wants to be left
    alone, None when it did not say."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s


class NobodyThere(RetryLater):
    """No connection: nothing listens there, the name is unknown, or the network is down."""


class RangesIgnored(Exception):
    """The server sends whole files only."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file to be fetched. digest: None when only its content will tell. key: the same text
    for the same content. cached: a file of the user that should be the same. role: what it is for
    a model that is built of files."""

    title: str
    size_bytes: int
    digest: Digest | None
    key: str
    source: RangeSource
    cached: Path | None = None
    role: Role = "weights"


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model as a host describes it. manifest and content (its bytes): None when the host has
    files only, from which the model is to be built. notes: what the user should hear of the
    choice that was made. base: of an adapter, the repository of the model that it is for, as far
    as the host knows it."""

    name: Name
    files: tuple[RemoteFile, ...]
    manifest: Manifest | None = None
    content: bytes | None = None
    notes: tuple[str, ...] = ()
    base: str | None = None

    @property
    def made_type(self) -> str:
        """The type of the layer that is built of the files."""
        is_adapter = any(file.role == "adapter" for file in self.files)
        return ADAPTER_TYPE if is_adapter else MODEL_TYPE

    @property
    def made_bytes(self) -> int:
        """About what will be written besides the files: one file does as it is, of several the
        model is made."""
        roles = ("weights", "adapter")
        sizes = [file.size_bytes for file in self.files if file.role in roles]
        return sum(sizes) if self.manifest is None and len(sizes) > 1 else 0

    @property
    def recipe(self) -> str | None:
        """The same text for a model made of the same files; None when it is not made."""
        if not self.made_bytes:
            return None
        keys = "\n".join(f"{file.title} {file.key}" for file in self.files)
        return Digest.of(keys.encode()).hex


@dataclass(frozen=True, slots=True)
class HostAccess:
    """What a host may need of this machine: credentials, the files of Ollama's key, and the
    memory that models may use."""

    credentials: Credentials
    key_files: tuple[Path, ...]
    memory_bytes: int


class Host(Protocol):
    """One kind of place where models are."""

    async def resolve(self) -> RemoteModel:
        """What has to be fetched for the requested model. Raises RemoteError, InvalidManifest."""
