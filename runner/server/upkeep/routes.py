"""The paths of the store's care."""

from __future__ import annotations

from runner.server.answers import DiskUsageResponse, GcResponse
from runner.server.routes import RouteSpec
from runner.server.sse import NDJSON
from runner.server.upkeep.fsck import fsck
from runner.server.upkeep.gc import du, gc
from runner.server.upkeep.imports import import_models
from runner.server.upkeep.wire import FsckRequest, GcRequest, ImportRequest

ROUTES = (
    RouteSpec("/api/fsck", ("POST",), fsck, takes=FsckRequest, streams=NDJSON),
    RouteSpec("/api/gc", ("POST",), gc, takes=GcRequest, gives=GcResponse),
    RouteSpec("/api/du", ("GET",), du, gives=DiskUsageResponse),
    RouteSpec("/api/import", ("POST",), import_models, takes=ImportRequest, streams=NDJSON),
)
