"""A worker with several replicas: real ones with an echo, behind a bridge that is no Ray."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runner.cluster import cluster_worker as module
from runner.cluster.cluster_worker import ClusterWorker, ReplicaSource, summed
from runner.cluster.shared_worker import Session, SharedWorker
from runner.errors import CapacityError, HearthError, InternalError, Unsupported, WorkerCrashed
from runner.models.delta_stream import DeltaStream
from runner.models.watchdog import Timeouts
from runner.types import GenerateRequest, LoadPlan, WorkerStats
from runner.worker.frame_reader import FrameReader
from tests.echo_models import echo_gguf


class Bridge(ReplicaSource):
    """Leads to replicas of this process."""

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.replicas: dict[str, SharedWorker] = {}
        self.workers: list[ClusterWorker] = []
        self.folder = tempfile.TemporaryDirectory(prefix="h-")
        self.server: asyncio.Server

    @property
    def bridge(self) -> Path:
        return Path(self.folder.name) / "b"

    async def open(self, count: int) -> None:
        self.server = await asyncio.start_unix_server(self._connected, self.bridge)
        for number in range(count):
            await self.add(f"r{number}")

    async def add(self, name: str) -> None:
        self.replicas[name] = await SharedWorker.start("echo", self.plan, Timeouts())
        self.announce()

    def announce(self, *without: str) -> None:
        for worker in self.workers:
            worker.on_replicas(frozenset(self.replicas) - set(without))

    def watch(self, app: str, worker: ClusterWorker) -> None:
        self.workers.append(worker)
        self.announce()

    def unwatch(self, app: str, worker: ClusterWorker) -> None:
        if worker in self.workers:
            self.workers.remove(worker)

    async def worker(self) -> ClusterWorker:
        made = await ClusterWorker("echo", self.plan, Timeouts(), "echo", self).start()
        while made.replicas < len(self.replicas):  # noqa: ASYNC110
            await asyncio.sleep(0)
        return made

    async def close(self) -> None:
        for worker in list(self.workers):
            await worker.close()
        self.server.close()
        for replica in self.replicas.values():
            await replica.close()
        self.folder.cleanup()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await FrameReader(reader).read()
        assert hello is not None
        replica = self.replicas[hello["replica"]]
        try:
            session = replica.open(os.urandom(4).hex())
        except HearthError:
            writer.close()
            return
        feeding = asyncio.create_task(_feed(reader, session))
        async for data in session.read():
            writer.write(data)
        feeding.cancel()
        replica.close_session(session)
        writer.close()


async def _feed(reader: asyncio.StreamReader, session: Session) -> None:
    while data := await reader.read(1 << 16):
        session.feed(data)
    session.close()


@pytest.fixture
async def bridge(tmp_path: Path) -> AsyncIterator[Bridge]:
    path = tmp_path / "echo.gguf"
    path.write_bytes(echo_gguf(65536))
    made = Bridge(LoadPlan(str(path), "echo", 65536, 262_144, 16))
    await made.open(2)
    yield made
    await made.close()


def ask(ident: str, text: str) -> GenerateRequest:
    return GenerateRequest(id=ident, model="echo", text=text, max_tokens=10_000)


async def read(stream: DeltaStream) -> str:
    text = ""
    async with asyncio.timeout(30):
        while not stream.done:
            text += "".join(delta.text for _, delta in await stream.read())
    return text


async def test_prompts_are_answered_by_all_replicas(bridge: Bridge) -> None:
    worker = await bridge.worker()
    texts = [f"{number} {'x' * 400}" for number in range(40)]
    streams = [worker.generate([ask(str(n), text)]) for n, text in enumerate(texts)]
    assert await asyncio.gather(*(read(stream) for stream in streams)) == texts
    stats = [await replica.stats() for replica in bridge.replicas.values()]
    assert all(each.completion_tokens for each in stats)
    assert (await worker.stats()).completion_tokens == sum(s.completion_tokens for s in stats)


async def test_a_request_that_has_not_begun_goes_to_another_replica_once(bridge: Bridge) -> None:
    worker = await bridge.worker()
    lost = worker.generate([ask("1", "once")])
    (chosen,) = [each for each in worker._handles.values() if each.busy]
    chosen._end_with(WorkerCrashed("it is gone"))
    assert await read(lost) == "once"
    assert not lost.cancel()  # nothing is left to cancel


async def test_a_request_that_two_replicas_lose_fails(bridge: Bridge) -> None:
    worker = await bridge.worker()
    lost = worker.generate([ask("1", "twice")])
    for _ in range(2):
        (chosen,) = [each for each in worker._handles.values() if each.busy]
        chosen._end_with(WorkerCrashed("it is gone"))
    with pytest.raises(WorkerCrashed, match="it is gone"):
        await read(lost)


async def test_an_answer_that_has_begun_is_not_asked_for_again(bridge: Bridge) -> None:
    worker = await bridge.worker()
    stream = worker.generate([ask("1", "word" + " word" * 700)])
    first = await stream.read()
    assert first
    (chosen,) = [each for each in worker._handles.values() if each.busy]
    chosen._end_with(WorkerCrashed("it is gone"))
    with pytest.raises(WorkerCrashed):
        await read(stream)
    assert not any(handle.busy for handle in worker._handles.values())


async def test_other_streams_do_not_notice_a_killed_worker(bridge: Bridge) -> None:
    worker = await bridge.worker()
    texts = {str(number): f"{number}" + " word" * 200 for number in range(8)}
    streams = {ident: worker.generate([ask(ident, text)]) for ident, text in texts.items()}
    victim = next(iter(bridge.replicas.values()))
    lost = {ident.split("/")[-1] for s in victim._sessions.values() for ident in s.open}
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    told = await asyncio.gather(*map(read, streams.values()), return_exceptions=True)
    for (ident, text), answer in zip(texts.items(), told, strict=True):
        if isinstance(answer, BaseException):
            assert isinstance(answer, WorkerCrashed)
            assert streams[ident].begun
        else:
            assert answer == text  # whole, and once
    assert len(lost) <= 8


async def test_calls_are_repeated_elsewhere(bridge: Bridge) -> None:
    worker = await bridge.worker()
    asked = asyncio.create_task(worker.tokenize("abc", add_special=False))
    while not any(handle.busy for handle in worker._handles.values()):  # noqa: ASYNC110
        await asyncio.sleep(0)
    (chosen,) = [each for each in worker._handles.values() if each.busy]
    chosen._end_with(WorkerCrashed("it is gone"))
    assert len(await asked) == 3


async def test_a_replica_that_is_drained_finishes_and_gets_no_more(bridge: Bridge) -> None:
    worker = await bridge.worker()
    stream = worker.generate([ask("1", "word" + " word" * 700)])
    await stream.read()
    ((name, chosen),) = [(n, each) for n, each in worker._handles.items() if each.busy]
    bridge.announce(name)
    assert await read(worker.generate([ask("2", "other")])) == "other"
    assert (await read(stream)).endswith("word")
    async with asyncio.timeout(10):
        while bridge.replicas[name].sessions:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert chosen.fault is not None
    assert worker.replicas == 1


async def test_a_request_waits_for_the_first_replica(bridge: Bridge) -> None:
    worker = await bridge.worker()
    bridge.announce(*bridge.replicas)
    stream = worker.generate([ask("1", "later")])
    assert worker.busy
    await bridge.add("r9")
    assert await read(stream) == "later"


async def test_without_a_replica_in_time_the_answer_is_try_again(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await bridge.worker()
    monkeypatch.setattr(module, "WAIT_S", 0.0)
    bridge.announce(*bridge.replicas)
    with pytest.raises(CapacityError) as refused:
        await read(worker.generate([ask("1", "never")]))
    assert refused.value.details["retry_after_s"] == module.RETRY_AFTER_S


async def test_an_undeployed_model_ends_what_it_does(bridge: Bridge) -> None:
    worker = await bridge.worker()
    ended = asyncio.Event()
    worker.on_end(ended.set)
    stream = worker.generate([ask("1", "word" + " word" * 700)])
    await stream.read()
    worker.end(InternalError("undeployed"))
    with pytest.raises(InternalError, match="undeployed"):
        await read(stream)
    await asyncio.wait_for(ended.wait(), 10)


async def test_slots_are_refused(bridge: Bridge) -> None:
    worker = await bridge.worker()
    with pytest.raises(Unsupported, match="cannot save or restore slots"):
        await worker.call("slot", action="save")


def test_counters_are_added_and_the_oldest_step_counts() -> None:
    one = WorkerStats(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, step_age_s=None)
    two = WorkerStats(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, step_age_s=2.0)
    assert summed([one, two]).running == 3
    assert summed([one, two]).step_age_s == 2.0
    assert summed([]).step_age_s is None
