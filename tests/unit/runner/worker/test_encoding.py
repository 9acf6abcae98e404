"""A worker in this process, with pictures that are encoded when the test says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from runner.backends.backend import BackendError, DecodedImage, ImagePart, ImageSlot
from runner.engine.engine import Engine
from runner.types import IMAGE_PLACEHOLDER, GenerateRequest, Image, LoadPlan, Message
from runner.worker import process
from runner.worker.grammar_compiler import GrammarCompiler
from runner.worker.images import ImageCache
from runner.worker.json_codec import to_json
from runner.worker.loader import ModelRuntime
from runner.worker.prompt_embeds import EmbeddedPrompts
from runner.worker.prompts import PromptEncoder
from runner.worker.sampling_resolver import SamplingResolver
from tests import fake_backend
from tests.fake_backend import FakeVision

TIMEOUT_S = 60
PLAN = LoadPlan("/nowhere", "echo", 2048, 16384, 32, projector="/nowhere")


class Gated(FakeVision):
    """Encodes nothing before it is let; then fails if it shall."""

    def __init__(self) -> None:
        self.answer_prefix = threading.Event()
        self.let = threading.Event()
        self.faulty = False

    def encode(self, slot: ImageSlot) -> ImagePart:
        self.answer_prefix.set()
        assert self.let.wait(TIMEOUT_S)
        if self.faulty:
            raise BackendError("no memory")
        return super().encode(slot)


class Frames:
    """The daemon's end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def send(self, frame: dict[str, Any]) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, frame)

    def wait_for_room(self) -> None:
        return

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while not wanted(frame := await asyncio.wait_for(self._queue.get(), TIMEOUT_S)):
            pass
        return frame

    async def end_of(self, id: str) -> None:
        """Wait until an answer is complete: its last delta has more than text and a count."""
        await self.until(
            lambda frame: any(
                one == id and isinstance(delta, dict) for one, delta in frame.get("deltas", ())
            )
        )


@pytest.fixture
def vision() -> Iterator[Gated]:
    gated = Gated()
    yield gated
    gated.let.set()


@pytest.fixture
def loaded(vision: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    model = replace(fake_backend.load(PLAN, lambda share: None), vision=vision)
    library = ImageCache(vision, lambda data: DecodedImage(16, len(data), bytes(48 * len(data))))
    tokenizer = model.tokenizer
    prompts = PromptEncoder(tokenizer, model.chat_template, images=library)
    engine = Engine(model.backend, tokenizer)
    whole = ModelRuntime(
        engine,
        prompts,
        model,
        GrammarCompiler(tokenizer),
        SamplingResolver(tokenizer),
        EmbeddedPrompts(model.backend.capacity),
        library,
    )
    monkeypatch.setattr(process, "load", lambda plan, progress, *_ranks: whole)


async def start() -> tuple[process.Worker, Frames]:
    frames = Frames()
    worker = process.Worker(PLAN, frames)  # type: ignore[arg-type]
    await frames.until(lambda frame: frame["op"] == "ready")
    return worker, frames


def ask(worker: process.Worker, id: str, text: str, *images: Image) -> None:
    request = GenerateRequest(id, messages=(Message("user", text, images=images),))
    worker.take({"op": "generate", "id": id, "request": to_json(request)})


SHOWN = Image(b"a picture")


@pytest.mark.usefixtures("loaded")
async def test_others_are_answered_while_a_picture_is_encoded(vision: Gated) -> None:
    worker, frames = await start()
    ask(worker, "picture", f"see {IMAGE_PLACEHOLDER}", SHOWN)
    await asyncio.to_thread(vision.answer_prefix.wait, TIMEOUT_S)
    ask(worker, "text", "hello")
    await frames.end_of("text")
    vision.let.set()
    await frames.end_of("picture")


@pytest.mark.usefixtures("loaded")
async def test_a_request_that_is_cancelled_while_its_picture_is_encoded_says_nothing(
    vision: Gated,
) -> None:
    worker, frames = await start()
    ask(worker, "gone", f"see {IMAGE_PLACEHOLDER}", SHOWN)
    await asyncio.to_thread(vision.answer_prefix.wait, TIMEOUT_S)
    worker.take({"op": "cancel", "id": "gone"})
    vision.let.set()
    ask(worker, "next", f"see {IMAGE_PLACEHOLDER}", SHOWN)

    def next_ended(frame: dict[str, Any]) -> bool:
        assert "gone" not in str(frame)
        return _done(frame, "next")

    await frames.until(next_ended)
    stats = worker._engine.stats()
    assert (stats.cancelled, stats.running, stats.waiting) == (1, 0, 0)


@pytest.mark.usefixtures("loaded")
async def test_a_picture_that_cannot_be_encoded_fails_its_request(vision: Gated) -> None:
    vision.faulty = True
    vision.let.set()
    worker, frames = await start()
    ask(worker, "bad", f"see {IMAGE_PLACEHOLDER}", SHOWN)
    ask(worker, "good", "hello")
    seen: list[dict[str, Any]] = []

    def both(frame: dict[str, Any]) -> bool:
        seen.append(frame)
        failed = any(each["op"] == "error" for each in seen)
        return failed and any(_done(each, "good") for each in seen)

    await frames.until(both)
    (error,) = [frame for frame in seen if frame["op"] == "error"]
    assert error["id"] == "bad"
    assert "could not be encoded: no memory" in error["error"]["message"]


def _done(frame: dict[str, Any], id: str) -> bool:
    """Whether the frame has the answer's last delta: more than text and a count."""
    return any(one == id and isinstance(delta, dict) for one, delta in frame.get("deltas", ()))
