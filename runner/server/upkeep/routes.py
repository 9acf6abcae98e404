"""The paths of the store's care."""

from __future__ import annotations

from runner.server.routes import Path
from runner.server.upkeep.adopting import import_models
from runner.server.upkeep.fsck import fsck
from runner.server.upkeep.gc import du, gc

PATHS = (
    Path("/api/fsck", ("POST",), fsck),
    Path("/api/gc", ("POST",), gc),
    Path("/api/du", ("GET",), du),
    Path("/api/import", ("POST",), import_models),
)
