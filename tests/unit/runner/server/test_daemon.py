"""The daemon's server."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import uvicorn

from runner.server import daemon
from runner.server.daemon import DaemonServer


@pytest.fixture
def collector() -> Iterator[None]:
    """The garbage collector of the tests, as it was."""
    thresholds = gc.get_threshold()
    gc.disable()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    gc.enable()


async def no_app(scope: Any, receive: Any, send: Any) -> None:
    """Answers nothing."""


async def test_garbage_is_collected_once_it_listens(collector: None) -> None:
    services: Any = SimpleNamespace(
        settings=SimpleNamespace(listen=(), models_dir="models"),
        address=SimpleNamespace(url="http://127.0.0.1"),
        library=SimpleNamespace(read_only=False),
        version="0",
    )
    table: Any = None

    config = uvicorn.Config(no_app, lifespan="off", log_config=None)
    config.load()
    server = DaemonServer(config, services, table)
    server.lifespan = config.lifespan_class(config)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        await server.startup([sock])
        assert gc.isenabled()
        await server.shutdown([sock])


async def test_a_signal_ends_the_wait_for_the_next_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "_DATE_EVERY_S", 3600.0)
    services, table = MagicMock(), MagicMock()
    services.settings.drain_timeout = None
    server = DaemonServer(uvicorn.Config(no_app, log_config=None), services, table)
    waiting = asyncio.create_task(server.main_loop())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(server._on_signal, signal.SIGTERM)
    await asyncio.wait_for(waiting, 60)
    assert services.draining is True
