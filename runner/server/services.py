"""What all handlers share: the settings, the store, the loaded models, the state of the whole."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass, field

from runner.library.library import Library
from runner.models.manager import Manager
from runner.server.keys import KeyRing
from runner.server.metrics import Metrics
from runner.server.openai.batches.executor import BatchExecutor
from runner.server.openai.responses.background import BackgroundResponses
from runner.server.rate_limits import RateLimiter
from runner.settings import Address, Settings


@dataclass(slots=True)
class Services:
    """One running daemon. library: closed at shutdown. manager: from start-up to shutdown.
    owner_token: opens everything to whoever can read the daemon's own files."""

    settings: Settings
    address: Address
    version: str
    keys: KeyRing
    library: Library
    models: Manager | None = None
    making: BackgroundResponses | None = None
    batching: BatchExecutor | None = None
    draining: bool = False
    owner_token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    metrics: Metrics = field(default_factory=Metrics)
    pid: int = field(default_factory=os.getpid)
    started_s: float = field(default_factory=time.monotonic)
    rates: RateLimiter = field(init=False)

    def __post_init__(self) -> None:
        self.rates = RateLimiter(self.settings.rate_limit)

    @property
    def uptime_s(self) -> float:
        """Seconds since its start."""
        return round(time.monotonic() - self.started_s, 3)

    @property
    def manager(self) -> Manager:
        """The manager of loaded models."""
        assert self.models is not None
        return self.models

    @property
    def background(self) -> BackgroundResponses:
        """The responses that are made without their clients."""
        assert self.making is not None
        return self.making

    @property
    def batches(self) -> BatchExecutor:
        """The batches, and the files that they read and write."""
        assert self.batching is not None
        return self.batching
