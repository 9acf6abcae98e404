from __future__ import annotations

import asyncio

from runner.models.client_turns import ClientTurns


async def _load(turns: ClientTurns, client: str, name: str, done: list[str]) -> None:
    async with turns.turn(client):
        await asyncio.sleep(0)
        done.append(name)


async def _begun(turns: ClientTurns, done: list[str], *names: str) -> list[asyncio.Task[None]]:
    """Loads by the client of the first letter, in this order."""
    tasks = [asyncio.create_task(_load(turns, name[0], name, done)) for name in names]
    await asyncio.sleep(0)
    return tasks


async def test_clients_take_turns_and_each_keeps_its_order() -> None:
    turns, done = ClientTurns(), list[str]()
    names = ("a1", "a2", "a3", "b1", "b2", "c1")
    await asyncio.gather(*await _begun(turns, done, *names))
    assert done == ["a1", "a2", "b1", "c1", "a3", "b2"]


async def test_who_gives_up_holds_nobody_up() -> None:
    turns, done = ClientTurns(), list[str]()
    for at in range(4):
        done.clear()
        tasks = await _begun(turns, done, "a1", "a2", "b1", "b2")
        tasks[at].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(done) == sorted({"a1", "a2", "b1", "b2"} - {("a1", "a2", "b1", "b2")[at]})
        assert not turns._busy
        assert not turns._waiting


async def test_a_turn_that_comes_as_its_client_gives_up_goes_on() -> None:
    turns, done = ClientTurns(), list[str]()
    async with turns.turn("x"):
        tasks = await _begun(turns, done, "a1", "b1")
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == ["b1"]
    assert not turns._busy
