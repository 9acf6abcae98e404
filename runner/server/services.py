"""What all handlers share: the settings, the store, the loaded models, the state of the whole."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from dataclasses import dataclass, field
from typing import Protocol

from runner.authority import is_loopback
from runner.library.background_pulls import BackgroundPulls
from runner.library.library import Library
from runner.library.saved_prefixes import SavedPrefixes
from runner.mcp.host import McpHost
from runner.models.manager import Manager
from runner.server.body_budget import BodyBudget
from runner.server.cluster import ClusterAccess
from runner.server.keys import KeyRing
from runner.server.metrics import Metrics
from runner.server.model_facts import KnownModels
from runner.server.openai.batches.executor import BatchExecutor
from runner.server.openai.responses.background import BackgroundResponses
from runner.server.openai.uploads.upload_store import UploadStore
from runner.server.openai.vector_stores.indexer import Indexer
from runner.server.rate_limits import RateLimiter
from runner.server.request_log import RequestSink
from runner.server.requests_in_flight import RequestsInFlight
from runner.server.stream_sessions import StreamSessions
from runner.setting_values import Address
from runner.settings import Explained, Settings


class OpenSocket(Protocol):
    """A connection that lasts beyond a request."""

    def leave(self) -> None:
        """The daemon is stopping."""


@dataclass(slots=True)
class Services:
    """One running daemon. owner_token: opens everything to whoever can read the daemon's own
    files."""

    settings: Settings
    address: Address
    version: str
    keys: KeyRing
    rates: RateLimiter
    metrics: Metrics
    library: Library
    known_models: KnownModels
    pulls: BackgroundPulls
    models: Manager
    cluster: ClusterAccess
    prefixes: SavedPrefixes
    background: BackgroundResponses
    batches: BatchExecutor
    uploads: UploadStore
    mcp: McpHost
    vectors: Indexer
    bodies: BodyBudget = field(default_factory=BodyBudget)
    streams: StreamSessions = field(default_factory=StreamSessions)
    requests: RequestsInFlight = field(default_factory=RequestsInFlight)
    websockets: set[OpenSocket] = field(default_factory=set)
    slot_transfers: asyncio.Lock = field(default_factory=asyncio.Lock)  # between files and workers
    sinks: tuple[RequestSink, ...] = ()  # of the records of requests
    explained: tuple[Explained, ...] = ()  # the settings, each with where it comes from
    draining: bool = False
    owner_token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    pid: int = field(default_factory=os.getpid)
    started_s: float = field(default_factory=time.monotonic)

    @property
    def is_public(self) -> bool:
        """Whether other machines can reach the daemon at one of its addresses."""
        hosts = (self.address.host, *(address.host for address in self.settings.listen))
        return not all(map(is_loopback, hosts))

    @property
    def uptime_s(self) -> float:
        """Seconds since its start."""
        return round(time.monotonic() - self.started_s, 3)
