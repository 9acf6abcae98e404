"""What hearth's own routes answer."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict


class StatusResponse(TypedDict):
    """The result. unchecked: why a pull left an installed model as it was."""

    status: str
    unchecked: NotRequired[str]


class LogoutResponse(StatusResponse):
    """The result of a logout. removed: false if nothing was stored."""

    removed: bool


class VersionResponse(TypedDict):
    """Who answers. version: of Ollama's release that hearth follows, which its clients compare with
    the oldest that they work with; hearth: of the daemon itself."""

    version: str
    hearth: str
    name: str
    pid: int
    store: str
    read_only: bool
    uptime_s: float
    drain_timeout_s: float | None
    log: str | None


class KeyEntry(TypedDict):
    """A key, which cannot be read back."""

    name: str
    scopes: list[str]
    created_at: Any


class KeyList(TypedDict):
    """All keys."""

    keys: list[KeyEntry]


class CreatedKey(TypedDict):
    """A new key, which is shown only once."""

    name: str
    scopes: list[str]
    key: str


class RemovedKey(TypedDict):
    """A removed key."""

    name: str
    removed: bool


class ModelSpace(TypedDict):
    """The bytes of one model; own: that only it uses."""

    name: str
    size: int
    own: int
    shared: int


class DiskUsageResponse(TypedDict):
    """Disk usage of the store, in bytes."""

    models: list[ModelSpace]
    blobs: int
    unused: int
    linked: int
    partials: int
    other: int
    total: int
    free: int | None


class CachedPrompts(TypedDict):
    """The saved prompts of a model; model None: saved by another daemon. Sizes in bytes."""

    model: str | None
    tokens: int
    size: int
    files: int
    used_at: str


class CacheResponse(TypedDict):
    """The folder of saved prompts. limit 0: nothing is saved."""

    path: str
    size: int
    limit: int
    models: list[CachedPrompts]


class CacheClearResponse(TypedDict):
    """Free space in bytes."""

    size: int


class GcRemovedFile(TypedDict):
    """A file that was removed, or would be."""

    path: str
    size: int


class GcResponse(TypedDict):
    """Removed data, in bytes."""

    blobs: list[GcRemovedFile]
    partials: list[GcRemovedFile]
    size: int
    skipped: str | None
    dry_run: bool
