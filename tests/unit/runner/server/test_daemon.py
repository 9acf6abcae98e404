"""The daemon's server."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

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


async def test_garbage_is_collected_once_it_listens(collector: None) -> None:
    services: Any = SimpleNamespace(
        settings=SimpleNamespace(listen=(), models_dir="models"),
        address=SimpleNamespace(url="http://127.0.0.1"),
        library=SimpleNamespace(read_only=False),
        version="0",
    )
    table: Any = None

    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    server = DaemonServer(config, services, table)
    server.lifespan = config.lifespan_class(config)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        await server.startup([sock])
        assert gc.isenabled()
        await server.shutdown([sock])
