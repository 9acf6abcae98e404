"""A real worker process that gets requests with pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.errors import ContextOverflow, InvalidRequest, Unsupported, from_wire
from runner.types import (
    IMAGE_PLACEHOLDER,
    GenerateRequest,
    Image,
    LoadPlan,
    Message,
    SamplingParams,
    Usage,
)
from runner.worker.json_codec import to_json
from tests.unit.runner.worker.test_process import PLAN, Client
from tests.vision_files import KINDS, png, write_vision_model

pytest.importorskip("PIL", reason="Pillow is not installed")

SEEING = replace(PLAN, projector="/nowhere/mmproj")
PICTURE = Image(png(64, 48))  # 13 tokens of echo


@pytest.fixture
def worker() -> Iterator[Client]:
    client = Client()
    yield client
    client.close()


@pytest.fixture
def echo(worker: Client) -> Client:
    assert worker.load(SEEING)["op"] == "ready"
    return worker


def chat(id: str, text: str, *images: Image, **options: Any) -> GenerateRequest:
    message = Message("user", text, images=images)
    return GenerateRequest(id, messages=(message,), **options)


def ask(client: Client, request: GenerateRequest) -> None:
    client.send("generate", id=request.id, request=to_json(request))


def usage(client: Client, id: str) -> Usage:
    end = client.deltas[id][-1].finish
    assert end is not None
    return end.usage


def finish(client: Client, *ids: str) -> None:
    """Wait until these have ended; that of another is no hindrance."""

    def ended(frame: dict[str, Any]) -> bool:
        if frame["op"] == "error" and frame["id"] in ids:
            raise from_wire(frame["error"])
        return all(client.finished(id) for id in ids)

    client.until(ended)


def refusal(client: Client, id: str) -> Exception:
    frame = client.until(lambda frame: frame["op"] == "error" and frame["id"] == id)
    return from_wire(frame["error"])


def test_a_picture_takes_tokens_once(echo: Client) -> None:
    ask(echo, chat("without", "hello"))
    ask(echo, chat("with", f"hello{IMAGE_PLACEHOLDER}", PICTURE))
    finish(echo, "without", "with")
    ask(echo, chat("again", f"hello{IMAGE_PLACEHOLDER}", PICTURE))
    finish(echo, "again")
    assert echo.text("with") == echo.text("without") == echo.text("again") == "hello"
    extra = usage(echo, "with").prompt_tokens - usage(echo, "without").prompt_tokens
    assert extra == 13
    assert usage(echo, "again").cached_tokens == usage(echo, "with").prompt_tokens - 1


def test_what_is_no_picture_fails_its_request_only(echo: Client) -> None:
    ask(echo, chat("bad", f"hello{IMAGE_PLACEHOLDER}", Image(b"\x89PNG\r\n\x1a\n and no more")))
    ask(echo, chat("good", f"hello{IMAGE_PLACEHOLDER}", PICTURE))
    error = refusal(echo, "bad")
    assert isinstance(error, InvalidRequest)
    assert "cannot be decoded" in error.message
    finish(echo, "good")


def test_a_picture_that_is_too_much_for_the_context_is_refused(echo: Client) -> None:
    ask(echo, chat("x", f"hello{IMAGE_PLACEHOLDER}", Image(png(1024, 1024)), context_length=2048))
    error = refusal(echo, "x")
    assert isinstance(error, ContextOverflow)
    assert error.details["prompt_tokens"] > 4096
    assert error.details["context_length"] == 2048


def test_turns_with_pictures_are_left_out_like_others(echo: Client) -> None:
    old = Message("user", f"old{IMAGE_PLACEHOLDER}", images=(Image(png(512, 512)),))
    messages = (old, Message("assistant", "yes"), Message("user", "new"))
    request = GenerateRequest("x", messages=messages, truncate_messages=True, context_length=512)
    ask(echo, request)
    finish(echo, "x")
    end = echo.deltas["x"][-1].finish
    assert end is not None
    assert end.messages_dropped == 2


def test_pictures_are_counted_and_never_told_as_tokens(echo: Client) -> None:
    one = to_json(chat("c", f"a{IMAGE_PLACEHOLDER}", PICTURE))
    none = to_json(chat("c", "a"))
    counts = [echo.call("count", request=each)["count"] for each in (one, none)]
    assert counts[0] - counts[1] == 13
    assert f"a{IMAGE_PLACEHOLDER}" in echo.call("render", request=one)["prompt"]
    with pytest.raises(Unsupported, match="counted"):
        echo.call("encode", request=one)


def test_a_model_without_a_projector_reads_no_pictures(worker: Client) -> None:
    worker.load()
    ask(worker, chat("x", f"a{IMAGE_PLACEHOLDER}", PICTURE))
    error = refusal(worker, "x")
    assert isinstance(error, InvalidRequest)
    assert "cannot process images" in error.message


@pytest.mark.parametrize("kind", list(KINDS))
def test_llama_cpp_answers_about_pictures_beside_other_streams(
    worker: Client, tmp_path: Path, kind: str
) -> None:
    files = write_vision_model(tmp_path, kind)
    plan = LoadPlan(str(files.model), "llamacpp", 1024, 4096, 8, threads=1)
    assert worker.load(replace(plan, projector=str(files.projector)))["op"] == "ready"
    sampling = SamplingParams(temperature=0.0)
    ask(worker, chat("text", "warm", sampling=sampling, max_tokens=200, ignore_eos=True))
    pictures = [Image(png(64, 40, seed)) for seed in (1, 2, 1)]
    for at, picture in enumerate(pictures):
        ask(worker, chat(f"{at}", f"the {IMAGE_PLACEHOLDER} is", picture, sampling=sampling,
                         max_tokens=8, ignore_eos=True))  # fmt: skip
    finish(worker, "text", "0", "1", "2")
    assert usage(worker, "text").completion_tokens == 200
    assert worker.text("0") == worker.text("2")
