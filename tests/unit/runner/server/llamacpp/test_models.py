"""POST /models/load: how often a model is asked for while it is loading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from runner.server.caller import Caller, set_caller
from runner.server.llamacpp.models import ModelNameRequest, load_model


async def test_a_model_that_is_loading_is_asked_for_once_by_each_client() -> None:
    leased, loaded = list[str](), asyncio.Event()

    @asynccontextmanager
    async def lease(name: str) -> AsyncIterator[None]:
        leased.append(name)
        await loaded.wait()
        yield

    def find(name: str) -> Any:
        return SimpleNamespace(name=SimpleNamespace(short=name.removesuffix(":latest")))

    http: Any = SimpleNamespace(
        services=SimpleNamespace(
            library=SimpleNamespace(find=find), models=SimpleNamespace(lease=lease)
        )
    )

    async def ask(client: str, name: str) -> None:
        set_caller(Caller(share=client))
        assert await load_model(http, ModelNameRequest(model=name)) == {"success": True}
        await asyncio.sleep(0)

    for _ in range(100):
        await ask("a", "m")
        await ask("a", "m:latest")
    await ask("a", "n")
    await ask("b", "m")
    assert leased == ["m", "n", "m"]
    loaded.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await ask("a", "m")
    assert leased == ["m", "n", "m", "m"]
