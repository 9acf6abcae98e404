"""The paths of the store's care."""

from __future__ import annotations

from runner.server.openapi.answers import Collected, DiskUsage
from runner.server.routes import Path
from runner.server.stream import NDJSON
from runner.server.upkeep.adopting import import_models
from runner.server.upkeep.fsck import fsck
from runner.server.upkeep.gc import du, gc
from runner.server.upkeep.wire import FsckRequest, GcRequest, ImportRequest

PATHS = (
    Path("/api/fsck", ("POST",), fsck, takes=FsckRequest, streams=NDJSON),
    Path("/api/gc", ("POST",), gc, takes=GcRequest, gives=Collected),
    Path("/api/du", ("GET",), du, gives=DiskUsage),
    Path("/api/import", ("POST",), import_models, takes=ImportRequest, streams=NDJSON),
)
