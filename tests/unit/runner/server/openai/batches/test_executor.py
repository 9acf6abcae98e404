"""Batches carried out, with a stand-in for the endpoints."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from runner.errors import QueueFull, StorageFailed
from runner.server.caller import OWNER, Caller
from runner.server.openai.batches import executor as module
from runner.server.openai.batches.executor import BatchExecutor, Traffic
from runner.server.openai.batches.journal import TABLES, Batch, BatchJournal, LineResult
from runner.server.openai.batches.results import LineResponse
from runner.server.openai.database import Database
from runner.server.openai.files.file_store import TABLES as FILES
from runner.server.openai.files.file_store import FileStore, StoredFile

URL = "/v1/completions"
OK = LineResponse(200, "req_1", {"usage": {"prompt_tokens": 1, "completion_tokens": 1}})
Reply = Callable[[str], Awaitable[LineResponse]]


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAIT_S", 0.0)


async def at_once(_: str) -> LineResponse:
    return OK


@dataclass
class World:
    """Daemons over one folder. asked: the lines in the order of their calls."""

    folder: Path
    reply: Reply = at_once
    parallel: int = 2
    asked: list[str] = field(default_factory=list)
    busy: int = 0
    busiest: int = 0
    clear: asyncio.Event = field(default_factory=asyncio.Event)
    callers: dict[str, Caller] = field(default_factory=lambda: {"": OWNER})

    def __post_init__(self) -> None:
        self.clear.set()
        database = Database(self.folder / "index.sqlite3", (*FILES, *TABLES), "the index")
        self.files, self.journal = FileStore(self.folder, database), BatchJournal(database)

    def daemon(self) -> BatchExecutor:
        async def clear() -> None:
            await self.clear.wait()

        traffic = Traffic(self.call, self.parallel, clear, self.callers.get)
        return BatchExecutor(self.files, self.journal, traffic)

    async def call(self, _: str, body: dict[str, Any]) -> LineResponse:
        self.asked.append(body["prompt"])
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            return await self.reply(body["prompt"])
        finally:
            self.busy -= 1

    def batch(self, ident: str, count: int, left_s: int = 1000) -> Batch:
        incoming = self.files.writing(name := f"file-{ident}")
        for number in range(count):
            value = {"custom_id": f"{number}", "method": "POST", "url": URL}
            line = {**value, "body": {"prompt": f"{ident}{number}"}}
            incoming.write(json.dumps(line).encode() + b"\n")
        file = StoredFile(name, "in", "batch", incoming.size_bytes, 1)
        self.files.keep(file, incoming, 1 << 20)
        now = int(time.time())
        return Batch(ident, URL, name, now, now + left_s)

    async def ended(self, ident: str) -> Batch:
        async with asyncio.timeout(10):
            while (await self.found(ident)).is_open:
                pass
        return await self.found(ident)

    async def found(self, ident: str) -> Batch:
        """A batch as it stands."""
        batch = await asyncio.to_thread(self.journal.find, ident)
        assert batch is not None
        return batch

    def told(self, batch: Batch) -> Counter[str]:
        """How often each line is in the files of batch."""
        names = [name for name in (batch.output_file_id, batch.error_file_id) if name]
        texts = [self.files.path_of(name).read_text() for name in names]
        lines = [json.loads(line) for text in texts for line in text.splitlines()]
        return Counter(line["custom_id"] for line in lines)


def each_once(count: int) -> Counter[str]:
    return Counter({f"{number}": 1 for number in range(count)})


async def test_lines_of_all_batches_share_the_slots(tmp_path: Path) -> None:
    full = asyncio.Event()
    world = World(tmp_path, parallel=3)

    async def reply(_: str) -> LineResponse:
        if world.busy == 3:
            full.set()
        await full.wait()
        await asyncio.sleep(0)
        return OK

    world.reply = reply
    daemon = world.daemon()
    for ident in "ab":
        await daemon.create(world.batch(ident, 10))
    for ident in "ab":
        batch = await world.ended(ident)
        assert (batch.status, batch.total, batch.completed) == ("completed", 10, 10)
        assert world.told(batch) == each_once(10)
    assert world.busiest == 3


async def test_another_daemon_goes_on_without_doing_lines_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    stuck = asyncio.Event()

    async def reply(prompt: str) -> LineResponse:
        if prompt >= "a5":
            stuck.set()
            await asyncio.Event().wait()
        return OK

    world.reply = reply
    first = world.daemon()
    await first.create(world.batch("a", 9))
    await stuck.wait()
    await first.close()
    assert not await first.cancel("a")
    done, world.asked, world.reply = world.journal.done("a"), [], at_once
    second = world.daemon()
    await second.resume()
    batch = await world.ended("a")
    assert (batch.status, world.told(batch)) == ("completed", each_once(9))
    assert sorted(world.asked) == [f"a{n}" for n in range(9) if n + 1 not in done]
    assert done
    await second.close()


async def test_a_cancelled_batch_drops_its_lines_and_keeps_answers(tmp_path: Path) -> None:
    world = World(tmp_path)
    stuck, dropped = asyncio.Event(), list[str]()

    async def reply(prompt: str) -> LineResponse:
        if prompt == "a0":
            return OK
        try:
            stuck.set()
            await asyncio.Event().wait()
        finally:
            dropped.append(prompt)
        return OK

    world.reply = reply
    daemon = world.daemon()
    await daemon.create(world.batch("a", 6))
    await stuck.wait()
    assert await daemon.cancel("a")
    batch = await world.ended("a")
    assert (batch.status, world.told(batch)) == ("cancelled", each_once(6))
    assert batch.completed + batch.failed == 6
    assert dropped
    assert len(world.asked) < 6


async def test_time_that_is_over_ends_a_batch(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.daemon().create(world.batch("a", 3, left_s=-1))
    batch = await world.ended("a")
    assert (batch.status, batch.failed, world.asked) == ("expired", 3, [])
    assert world.told(batch) == each_once(3)


@pytest.mark.parametrize(
    ("status", "error", "calls", "failed"),
    [
        (400, {"code": "invalid_value"}, 1, 1),
        (500, {"code": "worker_crashed"}, module.MAX_TRIES, 1),
        (503, {"code": "queue_full", "retry_after_s": 1}, 6, 0),
        (503, {"code": "shutting_down"}, 6, 0),
    ],
)
async def test_what_is_not_the_line_s_own_fault_is_tried_again(
    tmp_path: Path, status: int, error: dict[str, Any], calls: int, failed: int
) -> None:
    world = World(tmp_path)

    async def reply(_: str) -> LineResponse:
        return LineResponse(status, "req", {"error": error}) if len(world.asked) < 6 else OK

    world.reply = reply
    await world.daemon().create(world.batch("a", 1))
    batch = await world.ended("a")
    assert (batch.status, batch.failed, len(world.asked)) == ("completed", failed, calls)


async def test_no_line_begins_while_somebody_waits_for_room(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.clear.clear()
    daemon = world.daemon()
    await daemon.create(world.batch("a", 2))
    while (await world.found("a")).status != "in_progress":
        pass
    assert world.asked == []
    world.clear.set()
    assert (await world.ended("a")).completed == 2


async def test_a_disk_that_is_full_delays_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    add, faults = world.journal.add, [1, 2]

    def full(ident: str, result: LineResult) -> None:
        if faults:
            faults.pop()
            raise StorageFailed("no space left")
        add(ident, result)

    monkeypatch.setattr(world.journal, "add", full)
    await world.daemon().create(world.batch("a", 5))
    batch = await world.ended("a")
    assert (batch.status, batch.completed) == ("completed", 5)
    assert world.told(batch) == each_once(5)


async def test_an_input_that_is_gone_fails_the_batch(tmp_path: Path) -> None:
    world = World(tmp_path)
    batch = world.batch("a", 1)
    world.files.path_of(batch.input_file_id).unlink()
    await world.daemon().create(batch)
    ended = await world.ended("a")
    assert ended.errors is not None
    assert (ended.status, ended.errors[0]["code"]) == ("failed", "invalid_file")


async def test_batches_under_way_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_OPEN", 1)
    world = World(tmp_path)
    world.clear.clear()
    daemon = world.daemon()
    await daemon.create(world.batch("a", 1))
    with pytest.raises(QueueFull, match="1 batches"):
        await daemon.create(world.batch("b", 1))
    world.clear.set()
    await world.ended("a")
    await daemon.close()
    await daemon.create(world.batch("c", 1))
    assert (await world.ended("c")).status == "completed"
