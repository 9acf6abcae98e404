"""The worker of a speech model, without one: who is worked on, and what becomes of the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from runner.errors import InvalidRequest
from runner.speech import AudioPiece, Recording, SynthesisRequest
from runner.types import LoadPlan
from runner.worker.json_codec import to_json
from runner.worker.protocol import ProtocolError
from runner.worker.speech.process import MAX_ACTIVE, SpeechWorker
from runner.worker.speech.turns import Turns

PLAN = LoadPlan("/nowhere", "piper", 1, 1, 1)


class Frames:
    """Takes frames from any thread."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    def send(self, frame: Mapping[str, Any]) -> None:
        self._loop.call_soon_threadsafe(self.sent.put_nowait, frame)

    def wait_for_room(self) -> None:
        pass

    async def next(self, *ops: str) -> Mapping[str, Any]:
        while True:
            frame = await asyncio.wait_for(self.sent.get(), 30)
            if frame["op"] in ops:
                return frame


class Voice:
    """Says "bad" never, and everything else once it may."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.may = threading.Event()

    def synthesize(
        self, request: SynthesisRequest, send: Callable[[AudioPiece], None]
    ) -> Recording:
        if request.text == "bad":
            raise InvalidRequest("no")
        self._turns.run(self.may.wait, 30)
        send(AudioPiece(request.text.encode()))
        return Recording("en", 1.0)


@pytest.fixture
async def worker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SpeechWorker]:
    monkeypatch.setattr(SpeechWorker, "_loaded", lambda self: Voice(self._turns))
    frames: Any = Frames()
    worker = SpeechWorker(PLAN, frames)
    assert (await frames.next("ready"))["info"]["vocabulary"] == 0
    yield worker
    voice(worker).may.set()


def voice(worker: SpeechWorker) -> Voice:
    model: Any = worker._model
    assert isinstance(model, Voice)
    return model


def frames_of(worker: SpeechWorker) -> Frames:
    frames: Any = worker._frames
    assert isinstance(frames, Frames)
    return frames


def say(worker: SpeechWorker, id: str, client: str, text: str = "hi") -> None:
    request = to_json(SynthesisRequest(text, client=client))
    worker.take({"op": "synthesize", "id": id, "request": request})


async def test_of_a_client_one_is_worked_on_and_others_need_not_wait_for_it(
    worker: SpeechWorker,
) -> None:
    for number in range(5):
        say(worker, f"ann-{number}", "ann")
    for number in range(MAX_ACTIVE):
        say(worker, f"other-{number}", f"client-{number}")
    assert set(worker._active) == {"ann-0", "other-0", "other-1", "other-2"}
    stats = worker._stats()
    assert (stats.running, stats.waiting) == (4, 5)
    voice(worker).may.set()
    replies = [(await frames_of(worker).next("reply"))["id"] for _ in range(9)]
    assert [id for id in replies if id.startswith("ann")] == [f"ann-{n}" for n in range(5)]


async def test_parts_come_before_the_reply(worker: SpeechWorker) -> None:
    voice(worker).may.set()
    say(worker, "a", "ann", "hello")
    part = await frames_of(worker).next("part", "reply")
    assert (part["op"], part["id"], part["result"]) == ("part", "a", {"audio": "aGVsbG8="})
    reply = await frames_of(worker).next("part", "reply")
    assert reply["result"] == {"language": "en", "duration_s": 1.0}


async def test_what_is_cancelled_says_nothing_more(worker: SpeechWorker) -> None:
    say(worker, "first", "ann")
    say(worker, "held", "bob")
    say(worker, "waits", "ann")
    for id in ("waits", "held"):
        worker.take({"op": "cancel", "id": id})
    voice(worker).may.set()
    say(worker, "last", "ann")
    replies = [(await frames_of(worker).next("reply", "part", "error"))["id"] for _ in range(4)]
    assert set(replies) == {"first", "last"}
    assert worker._stats().cancelled == 2


async def test_a_fault_is_the_request_s_own(worker: SpeechWorker) -> None:
    voice(worker).may.set()
    say(worker, "a", "ann", "bad")
    error = await frames_of(worker).next("error")
    assert (error["id"], error["error"]["message"]) == ("a", "no")
    say(worker, "b", "ann")
    assert (await frames_of(worker).next("reply"))["id"] == "b"


async def test_other_frames_are_refused_by_what_the_model_is_for(worker: SpeechWorker) -> None:
    for op in ("generate", "embed", "tokenize", "transcribe"):
        worker.take({"op": op, "id": op})
        error = await frames_of(worker).next("error")
        assert (error["id"], error["error"]["code"]) == (op, "unsupported")
        assert "/v1/audio/speech" in error["error"]["message"]
    with pytest.raises(ProtocolError):
        worker.take({"op": "synthesize"})
