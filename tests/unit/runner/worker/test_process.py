"""A real worker process on a real socket, with the echo backend."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from runner.errors import ContextOverflow, HearthError, from_wire
from runner.models.encoded_frame import EncodedFrame
from runner.types import Delta, GenerateRequest, LoadPlan, Message, SamplingParams, WorkerStats
from runner.worker.json_codec import to_json
from runner.worker.protocol import (
    MAX_FRAME_BYTES,
    PART_NUMBERS,
    decode_body,
    delta_from_wire,
    encode_frame,
    vector_from_wire,
)
from tests.daemon_processes import DaemonProcess
from tests.fake_backend import EMBEDDING_WIDTH, STUCK, VOCABULARY

TIMEOUT_S = 60
PLAN = LoadPlan("/nowhere", "echo", 2048, 16384, 32)


class Client:
    """The daemon's side of one worker."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.socket = ours
        ours.settimeout(TIMEOUT_S)
        with theirs:
            self.process = DaemonProcess({}, worker=theirs)
        self.deltas: dict[str, list[Delta]] = {}
        self.steps = 0
        self.parts: list[list[str]] = []

    def close(self) -> None:
        self.socket.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(TIMEOUT_S)

    def send(self, op: str, **values: Any) -> None:
        for piece in EncodedFrame({"op": op, **values}).pieces():
            self.socket.sendall(piece)

    def receive(self) -> dict[str, Any] | None:
        """The next frame, None when the worker is gone."""
        head = self._exactly(4)
        return None if head is None else decode_body(self._exactly(int.from_bytes(head)) or b"")

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                more = self.socket.recv(size - len(data))
            except ConnectionError:
                return None
            if not more:
                return None
            data += more
        return data

    def load(self, plan: LoadPlan = PLAN) -> dict[str, Any]:
        self.send("load", plan=to_json(plan))
        return self.until(lambda frame: frame["op"] in ("ready", "failed"))

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first wanted frame; deltas on the way are kept."""
        while (frame := self.receive()) is not None:
            if frame["op"] == "step":
                self.steps += 1
                for id, delta in frame["deltas"]:
                    self.deltas.setdefault(id, []).append(delta_from_wire(delta))
            if frame["op"] == "part":
                self.parts.append(frame["result"])
            if wanted(frame):
                return frame
        raise EOFError("the worker is gone")

    def generate(self, id: str, text: str, **options: Any) -> None:
        request = GenerateRequest(id, messages=(Message("user", text),), **options)
        self.send("generate", id=id, request=to_json(request))

    def finish(self, *ids: str) -> None:
        self.until(lambda frame: all(self.finished(id) for id in ids))

    def finished(self, id: str) -> bool:
        return id in self.deltas and self.deltas[id][-1].finish is not None

    def text(self, id: str) -> str:
        return "".join(delta.text for delta in self.deltas[id])

    def call(self, op: str, **values: Any) -> Any:
        self.send(op, id="call", **values)
        frame = self.until(lambda frame: frame.get("id") == "call" and frame["op"] != "part")
        if frame["op"] == "error":
            raise from_wire(frame["error"])
        return frame["result"]

    def stats(self) -> WorkerStats:
        return WorkerStats(**self.call("stats"))


@pytest.fixture
def worker() -> Iterator[Client]:
    client = Client()
    yield client
    client.close()


@pytest.fixture
def loaded(worker: Client) -> Client:
    assert worker.load()["op"] == "ready"
    return worker


def test_loading_reports_progress_and_what_was_loaded(worker: Client) -> None:
    worker.send("load", plan=to_json(PLAN))
    frames = [worker.receive() for _ in range(3)]
    assert [frame["op"] for frame in frames if frame] == ["loading", "loading", "ready"]
    assert frames[2] is not None
    words = {"bos": "<|begin|>", "eos": "<|end|>"}
    assert frames[2]["info"] == {"vocabulary": VOCABULARY, **words}


def test_a_conversation_is_rendered_and_answered(loaded: Client) -> None:
    loaded.generate("a", "hällo 🙂")
    loaded.finish("a")
    assert loaded.text("a") == "hällo 🙂"
    finish = loaded.deltas["a"][-1].finish
    assert finish is not None
    assert finish.reason == "stop"
    assert finish.usage.prompt_tokens > len("hällo 🙂".encode())


def test_many_requests_at_once_share_their_steps(loaded: Client) -> None:
    texts = {f"r{i}": f"text number {i} " * 3 for i in range(24)}
    for id, text in texts.items():
        loaded.generate(id, text)
    loaded.finish(*texts)
    assert {id: loaded.text(id) for id in texts} == texts
    stats = loaded.stats()
    assert stats.completion_tokens == sum(map(len, loaded.deltas.values()))
    assert stats.steps < stats.completion_tokens / 2
    assert stats.cached_tokens > 0
    assert (stats.running, stats.waiting) == (0, 0)


def test_text_and_tokens_are_prompts_too(loaded: Client) -> None:
    for id, prompt in (("t", {"text": "abc"}), ("k", {"tokens": tuple(b"xyz")})):
        request = GenerateRequest(id, **prompt)  # type: ignore[arg-type]
        loaded.send("generate", id=id, request=to_json(request))
    loaded.finish("t", "k")
    assert (loaded.text("t"), loaded.text("k")) == ("abc", "xyz")


def test_logprobs_and_stops_cross_the_protocol(loaded: Client) -> None:
    loaded.generate("a", "one STOP", stop=("STOP",), sampling=SamplingParams(logprobs=1))
    loaded.finish("a")
    assert loaded.text("a") == "one "
    assert [x.piece for delta in loaded.deltas["a"] for x in delta.logprobs][:3] == [
        b"o",
        b"n",
        b"e",
    ]
    finish = loaded.deltas["a"][-1].finish
    assert finish is not None
    assert finish.stop_string == "STOP"


def test_every_step_of_a_long_prompt_sends_a_frame(loaded: Client) -> None:
    loaded.generate("a", "x" * 1500, max_tokens=1)
    loaded.finish("a")
    assert loaded.steps == loaded.stats().steps == 4  # 256 tokens, then 512
    assert len(loaded.deltas["a"]) == 1


def test_a_cancelled_request_sends_nothing_more_and_leaves_the_batch(loaded: Client) -> None:
    loaded.generate("gone", "<|slow|>abc", ignore_eos=True)
    loaded.generate("stays", "<|slow|>xyz", ignore_eos=True)
    loaded.until(lambda frame: {"gone", "stays"} <= set(loaded.deltas))
    loaded.send("cancel", id="gone")
    stats = loaded.stats()
    while stats.cancelled == 0:
        stats = loaded.stats()
    heard = len(loaded.deltas["gone"])
    assert stats.running == 1
    before = len(loaded.deltas["stays"])
    loaded.until(lambda frame: len(loaded.deltas["stays"]) >= before + 5)
    assert len(loaded.deltas["gone"]) == heard
    assert loaded.stats().completion_tokens - stats.completion_tokens < 40


def test_cancelling_an_unknown_request_is_no_error(loaded: Client) -> None:
    loaded.send("cancel", id="nobody")
    assert loaded.stats().cancelled == 0


def test_tokenize_detokenize_and_render_answer(loaded: Client) -> None:
    assert loaded.call("tokenize", text="é<|end|>", add_special=True)["tokens"][-1] > 255
    tokens = loaded.call("tokenize", text="é<|end|>", add_special=False)["tokens"]
    assert bytes(tokens).decode() == "é<|end|>"
    assert loaded.call("detokenize", tokens=tokens)["text"] == "é<|end|>"
    request = to_json(GenerateRequest("x", messages=(Message("user", "hi"),)))
    assert "user\nhi" in loaded.call("render", request=request)["prompt"]
    long = GenerateRequest("x", messages=(Message("user", "x" * (1 << 17)),), context_length=99)
    with pytest.raises(ContextOverflow, match="maximum context length is 99 tokens"):
        loaded.call("render", request=to_json(long))


def test_embeddings_answer_and_refuse(loaded: Client) -> None:
    result = loaded.call("embed", inputs=["abc", [1, 2, 3]], truncate=True)
    assert result == {"prompt_tokens": 7}
    vectors = [vector_from_wire(each) for part in loaded.parts for each in part]
    assert [sum(value * value for value in vector) for vector in vectors] == pytest.approx([1, 1])
    with pytest.raises(HearthError, match="input"):
        loaded.call("embed", inputs=[3], truncate=True)
    with pytest.raises(HearthError, match="at most"):
        loaded.call("embed", inputs=["x" * 3000], truncate=False)


def test_many_vectors_come_in_short_parts(loaded: Client) -> None:
    loaded.call("embed", inputs=[[1]] * 3000, truncate=True)
    assert sum(map(len, loaded.parts)) == 3000
    assert max(map(len, loaded.parts)) * EMBEDDING_WIDTH <= PART_NUMBERS


@pytest.mark.parametrize(
    ("op", "values", "code"),
    [
        ("generate", {"request": {}}, "invalid_value"),
        ("generate", {}, "invalid_value"),
        ("generate", {"request": to_json(GenerateRequest("other"))}, "invalid_value"),
        ("generate", {"request": to_json(GenerateRequest("call"))}, "invalid_value"),
        (
            "generate",
            {"request": to_json(GenerateRequest("call", tokens=(9999,)))},
            "invalid_value",
        ),
        (
            "generate",
            {"request": to_json(GenerateRequest("call", text="x" * 5000))},
            "context_length_exceeded",
        ),
        ("detokenize", {"tokens": [99999]}, "invalid_value"),
        ("detokenize", {"tokens": "abc"}, "invalid_value"),
        ("tokenize", {}, "invalid_value"),
        ("embed", {"inputs": None}, "invalid_value"),
    ],
)
def test_a_bad_request_is_an_error_of_that_request_only(
    loaded: Client, op: str, values: dict[str, Any], code: str
) -> None:
    with pytest.raises(HearthError) as caught:
        loaded.call(op, **values)
    assert caught.value.code == code
    loaded.generate("good", "still here")
    loaded.finish("good")
    assert loaded.text("good") == "still here"


def test_an_answer_that_is_too_long_is_an_error_of_its_request(loaded: Client) -> None:
    with pytest.raises(HearthError, match="request less"):
        loaded.call("pieces", tokens=[1] * 2_500_000)
    with pytest.raises(HearthError, match="send fewer"):
        loaded.call("embed", inputs=[[1]] * 80_000, truncate=True)
    loaded.generate("good", "still here")
    loaded.finish("good")


def test_a_step_that_fails_ends_what_runs_and_the_worker_serves_on(loaded: Client) -> None:
    loaded.generate("bad", "ab<|raise|>")
    frame = loaded.until(lambda frame: frame["op"] == "error")
    assert frame["id"] == "bad"
    assert frame["error"]["code"] == "internal_error"
    assert loaded.text("bad") == "ab"
    loaded.generate("good", "still here")
    loaded.finish("good")
    assert loaded.text("good") == "still here"


def test_a_native_crash_ends_the_process_by_its_signal(loaded: Client) -> None:
    loaded.generate("bad", "abc<|crash|>")
    with pytest.raises(EOFError):
        loaded.finish("bad")
    assert loaded.text("bad") == "abc"
    assert loaded.process.wait(TIMEOUT_S) == -signal.SIGSEGV


def test_a_hanging_step_can_be_seen_from_outside(loaded: Client) -> None:
    loaded.generate("bad", "abc<|hang|>")
    loaded.until(lambda frame: "".join(d.text for d in loaded.deltas.get("bad", [])) == "abc")
    stats = loaded.stats()
    while stats.step_age_s is None:
        stats = loaded.stats()
    assert (stats.running, stats.steps) == (1, 3)
    assert loaded.stats().steps == 3


def test_a_stuck_prompt_is_answered_at_its_limit_and_holds_up_nobody(worker: Client) -> None:
    worker.load(replace(PLAN, step_limit_s=1.0))
    began_s = time.monotonic()
    worker.generate("stuck", STUCK)
    worker.generate("other", "hello", max_tokens=3)
    error = worker.until(lambda frame: frame["op"] == "error" and frame["id"] == "stuck")
    assert 1.0 <= time.monotonic() - began_s < 2.0
    assert error["error"]["code"] == "worker_timeout"
    assert "prompt" in error["error"]["message"]
    worker.until(lambda frame: frame["op"] == "lost")  # the daemon replaces it
    assert worker.text("other") == "hel"


def test_the_worker_ends_with_its_connection_even_in_a_step(loaded: Client) -> None:
    loaded.generate("a", "<|hang|>")
    loaded.socket.shutdown(socket.SHUT_RDWR)
    assert loaded.process.wait(TIMEOUT_S) == 0


def test_shutdown_ends_the_worker_without_waiting_for_requests(loaded: Client) -> None:
    loaded.generate("a", "<|slow|>a", ignore_eos=True)
    loaded.send("shutdown")
    assert loaded.process.wait(TIMEOUT_S) == 0


def test_a_connection_without_a_frame_ends_the_worker(worker: Client) -> None:
    worker.socket.close()
    assert worker.process.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize(
    "data",
    [
        (MAX_FRAME_BYTES + 1).to_bytes(4),
        (3).to_bytes(4) + b"[1]",
        (2).to_bytes(4) + b"{}",
        (4).to_bytes(4) + b"\xff\xfe\x00\x01",
        encode_frame({"op": "generate", "id": "a"}),
        encode_frame({"op": "load"}),
        encode_frame({"op": "load", "plan": {"surprise": 1}}),
    ],
)
def test_what_is_no_first_frame_ends_the_worker(worker: Client, data: bytes) -> None:
    worker.socket.sendall(data)
    assert worker.process.wait(TIMEOUT_S) == 76
    assert worker.receive() is None


@pytest.mark.parametrize(
    "frame", [{"op": "dance", "id": "a"}, {"op": "stats"}, {"op": "stats", "id": 7}]
)
def test_what_makes_no_sense_later_ends_the_worker(loaded: Client, frame: dict[str, Any]) -> None:
    loaded.socket.sendall(encode_frame(frame))
    assert loaded.process.wait(TIMEOUT_S) == 76


def test_a_model_that_cannot_be_loaded_is_reported(worker: Client) -> None:
    plan = {**to_json(PLAN), "backend": "nothing"}
    worker.send("load", plan=plan)
    frame = worker.until(lambda frame: True)
    assert frame["op"] == "failed"
    assert frame["error"]["code"] == "model_load_failed"
    assert worker.process.wait(TIMEOUT_S) == 1


def test_a_daemon_that_does_not_read_pauses_the_engine(loaded: Client) -> None:
    loaded.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    request = {"op": "tokenize", "id": "t", "text": "x" * 400_000, "add_special": False}
    loaded.generate("a", "abc", ignore_eos=True, max_tokens=1500)
    for _ in range(12):
        loaded.socket.sendall(encode_frame(request))
    replies = 0

    def count(frame: dict[str, Any]) -> bool:
        nonlocal replies
        replies += frame["op"] == "reply"
        return replies == 12 and loaded.finished("a")

    loaded.until(count)
    assert len(loaded.text("a")) == 1500 - 1500 // 4


def test_the_worker_gives_up_core_files_and_privileges(loaded: Client) -> None:
    if not os.path.exists("/proc/self/status"):
        pytest.skip("no /proc here")
    pid = loaded.process.pid
    with open(f"/proc/{pid}/status") as status:
        assert "NoNewPrivs:\t1" in status.read()
    with open(f"/proc/{pid}/limits") as limits:
        core = next(line for line in limits if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["1", "1"]


def growing(client: Client, granted: Callable[[int], int]) -> list[int]:
    """Answer the worker when it asks for a larger cache; what it asks for."""
    asked: list[int] = []
    receive = client.receive

    def receive_and_grant() -> dict[str, Any] | None:
        frame = receive()
        if frame is not None and frame["op"] == "grow":
            asked.append(frame["tokens"])
            client.send("grant", id="grow", pool_tokens=granted(frame["tokens"]))
        return frame

    client.receive = receive_and_grant  # type: ignore[method-assign]
    plan = replace(PLAN, pool_tokens=256, context_length=256, max_pool_tokens=2048)
    assert client.load(replace(plan, sequence_tokens=2048))["op"] == "ready"
    return asked


def test_the_daemon_is_asked_for_a_larger_cache(worker: Client) -> None:
    asked = growing(worker, lambda tokens: 2 * tokens)
    worker.generate("short", "x" * 100)
    worker.generate("long", "y" * 900)
    worker.finish("short", "long")
    assert (worker.text("short"), worker.text("long")) == ("x" * 100, "y" * 900)
    assert len(asked) <= 2  # for the prompt, and for both answers
    assert worker.stats().pool_tokens == min(2 * asked[-1], 2048)


def test_a_conversation_is_cut_to_the_cache_that_must_not_grow(worker: Client) -> None:
    growing(worker, lambda _: 256)
    old = (Message("user", "o" * 400), Message("assistant", "yes"))
    messages = (*old, Message("user", "new"))
    request = GenerateRequest("x", messages=messages, truncate_messages=True)
    worker.send("generate", id="x", request=to_json(request))
    worker.finish("x")
    finish = worker.deltas["x"][-1].finish
    assert finish is not None
    assert (worker.text("x"), finish.messages_dropped) == ("new", 2)
    with pytest.raises(HearthError) as caught:
        worker.call(
            "generate", request=to_json(replace(request, id="call", truncate_messages=False))
        )
    assert caught.value.details["context_length"] == 256
