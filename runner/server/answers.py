"""What hearth's own routes answer."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict


class StatusResponse(TypedDict):
    """What came of it. unchecked: why a pull left an installed model as it was."""

    status: str
    unchecked: NotRequired[str]


class LogoutResponse(StatusResponse):
    """What came of a logout. removed: false when there was nothing to forget."""

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
    """A key, the only time that it is shown."""

    name: str
    scopes: list[str]
    key: str


class RemovedKey(TypedDict):
    """A key that is no more."""

    name: str
    removed: bool


class ModelSpace(TypedDict):
    """The bytes of one model; own: that only it uses."""

    name: str
    size: int
    own: int
    shared: int


class DiskUsageResponse(TypedDict):
    """What the store takes, in bytes."""

    models: list[ModelSpace]
    blobs: int
    unused: int
    linked: int
    partials: int
    other: int
    total: int
    free: int | None


class CachedPrompts(TypedDict):
    """What is saved of a model's prompts; model None: by another daemon. Sizes in bytes."""

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
    """The bytes that are free now."""

    size: int


class GcRemovedFile(TypedDict):
    """A file that is gone, or would be."""

    path: str
    size: int


class GcResponse(TypedDict):
    """What was removed, in bytes."""

    blobs: list[GcRemovedFile]
    partials: list[GcRemovedFile]
    size: int
    skipped: str | None
    dry_run: bool
