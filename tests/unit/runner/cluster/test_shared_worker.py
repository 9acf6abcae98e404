"""A worker process with several ingresses."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from runner.cluster import shared_worker as module
from runner.cluster.shared_worker import Session, SharedWorker
from runner.errors import WorkerCrashed
from runner.models.watchdog import Timeouts
from runner.types import GenerateRequest, LoadPlan
from runner.worker.json_codec import to_json
from runner.worker.protocol import decode_body, encode_frame
from tests.echo_models import echo_gguf


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[SharedWorker]:
    path = tmp_path / "echo.gguf"
    path.write_bytes(echo_gguf())
    plan = LoadPlan(str(path), "echo", 4096, 8192, 16)
    started = await SharedWorker.start("echo", plan, Timeouts())
    yield started
    await started.close()


class Ingress:
    """The other side of a session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._data = session.read()
        self._buffer = b""
        self.frames: list[dict[str, Any]] = []

    def send(self, op: str, **values: Any) -> None:
        self.session.feed(encode_frame({"op": op, **values}))

    def generate(self, ident: str, text: str, **fields: Any) -> None:
        request = GenerateRequest(id=ident, text=text, **fields)
        self.send("generate", id=ident, request=to_json(request))

    async def next(self) -> dict[str, Any]:
        """The next frame."""
        async with asyncio.timeout(20):
            while not self.frames:
                self._buffer += await anext(self._data)
                while len(self._buffer) >= 4:
                    (size,) = struct.unpack_from(">I", self._buffer)
                    if len(self._buffer) < 4 + size:
                        break
                    self.frames.append(decode_body(self._buffer[4 : 4 + size]))
                    self._buffer = self._buffer[4 + size :]
        return self.frames.pop(0)

    async def text(self, ident: str) -> str:
        """The whole answer to a request."""
        text = ""
        while True:
            frame = await self.next()
            for owner, delta in frame.get("deltas", ()):
                assert owner == ident
                text += delta[0] if isinstance(delta, list) else delta["text"]
                if isinstance(delta, dict) and delta.get("finish"):
                    return text


async def test_ingresses_use_the_same_ids_and_get_their_own_answers(worker: SharedWorker) -> None:
    one, two = Ingress(worker.open("a")), Ingress(worker.open("b"))
    one.generate("1", "first")
    two.generate("1", "second")
    texts = await asyncio.gather(one.text("1"), two.text("1"))
    assert "first" in texts[0]
    assert "second" in texts[1]
    assert worker.sequences == 0


async def test_a_large_frame_reaches_the_worker_whole(worker: SharedWorker) -> None:
    ingress = Ingress(worker.open("a"))
    ingress.send("tokenize", id="c", text="x" * 300_000, add_special=False)
    frame = await ingress.next()
    assert frame["op"] == "reply"
    assert frame["id"] == "c"
    assert len(frame["result"]["tokens"]) == 300_000


async def test_an_ingress_loads_nothing_and_hears_that_it_is_ready(worker: SharedWorker) -> None:
    ingress = Ingress(worker.open("a"))
    ingress.send("load", plan={})
    assert (await ingress.next())["info"]["vocabulary"] == worker.info.vocabulary


async def test_what_an_ingress_asked_for_ends_with_it(worker: SharedWorker) -> None:
    session = worker.open("a")
    ingress = Ingress(session)
    ingress.generate("1", "word " * 500, ignore_eos=True, max_tokens=1500)
    await ingress.next()
    assert worker.sequences == 1
    worker.close_session(session)
    assert worker.sequences == 0
    while (stats := await worker.stats()).running:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert stats.cancelled == 1


async def test_a_silent_ingress_is_let_go(
    worker: SharedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.open("a")
    worker.close_silent()
    assert worker.sessions == 1
    monkeypatch.setattr(module, "SILENCE_S", -1.0)
    worker.close_silent()
    assert worker.sessions == 0


async def test_all_ingresses_hear_of_the_workers_death(worker: SharedWorker) -> None:
    one, two = Ingress(worker.open("a")), Ingress(worker.open("b"))
    assert worker.pid is not None
    import os
    import signal

    os.kill(worker.pid, signal.SIGKILL)
    for ingress in (one, two):
        frame = await ingress.next()
        assert frame["op"] == "failed"
        assert frame["error"]["details"]["signal"] == "SIGKILL"
    with pytest.raises(WorkerCrashed):
        worker.open("c")
    assert worker.fault is not None


async def test_a_quiet_session_beats(worker: SharedWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_S", 0.001)
    assert await anext(worker.open("a").read()) == b""


def _begun(*idents: str) -> Session:
    """A session in which these answers have had their first delta."""
    session = Session("a", lambda *_: None)
    session.open |= set(idents)
    session.put_step([(ident, ["first", 1]) for ident in idents])
    return session


async def test_what_finishes_an_answer_is_not_kept_back_and_brings_the_texts_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PACE_S", 1000.0)
    session = _begun("1", "2")
    ingress = Ingress(session)
    assert (await ingress.next())["deltas"] == [["1", ["first", 1]], ["2", ["first", 1]]]
    session.put_step([("1", ["a", 1]), ("2", ["x", 1])])
    session.put_step([("1", ["b", 2])])
    session.put_step([("1", ["c", 1]), ("2", {"text": "y", "finish": {}})])
    session.put_step([("1", ["d", 1])])
    assert (await ingress.next())["deltas"] == [["1", ["ab", 3]], ["2", ["x", 1]]]
    assert (await ingress.next())["deltas"][1] == ["2", {"text": "y", "finish": {}}]
    assert (await ingress.next())["deltas"] == [["1", ["d", 1]]]
    session.close()


async def test_the_first_delta_of_an_answer_is_not_kept_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PACE_S", 1000.0)
    session = _begun("1")
    ingress = Ingress(session)
    await ingress.next()
    session.open.add("2")
    session.put_step([("1", ["a", 1])])
    session.put_step([("2", ["first", 1])])
    assert (await ingress.next())["deltas"] == [["1", ["a", 1]]]
    assert (await ingress.next())["deltas"] == [["2", ["first", 1]]]
    session.close()


async def test_texts_that_come_fast_are_sent_together_after_a_while() -> None:
    session = _begun("1")
    ingress = Ingress(session)
    await ingress.next()
    for text in "abc":
        session.put_step([("1", [text, 1])])
    assert (await ingress.next())["deltas"] == [["1", ["abc", 3]]]
    session.close()


async def test_a_frame_that_is_none_ends_the_session_only(worker: SharedWorker) -> None:
    bad, good = Ingress(worker.open("a")), Ingress(worker.open("b"))
    bad.session.feed(b"\x00\x00\x00\x02[]")
    assert (await bad.next())["op"] == "failed"
    good.generate("1", "still here")
    assert "still here" in await good.text("1")
