"""Workers that misbehave: small scripts in the place of the real one."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
import time
from typing import Any

import pytest

from runner.errors import (
    HearthError,
    InvalidRequest,
    ModelLoadFailed,
    WorkerCrashed,
    WorkerTimeout,
)
from runner.models import encoded_frame, watchdog, worker_process
from runner.models.supervisor import WorkerHandle
from runner.models.watchdog import Timeouts
from runner.models.worker_process import WorkerProcess
from runner.types import GenerateRequest, LoadPlan

PLAN = LoadPlan("/none", "echo", 100, 100, 4)
PRELUDE = """
import json, os, socket, struct, sys, time
sock = socket.socket(fileno=int(sys.argv[1]))
def send(frame):
    body = json.dumps(frame).encode()
    sock.sendall(struct.pack(">I", len(body)) + body)
def exactly(size):
    data = b""
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            sys.exit(0)
        data += chunk
    return data
def receive():
    return json.loads(exactly(struct.unpack(">I", exactly(4))[0]))
info = {"vocabulary": 10}
receive()
"""
READY = "send({'op': 'ready', 'info': info})\n"


async def start(
    monkeypatch: pytest.MonkeyPatch, script: str, timeouts: Timeouts | None = None
) -> WorkerHandle:
    code = PRELUDE + textwrap.dedent(script)
    monkeypatch.setattr(
        worker_process,
        "worker_command",
        lambda *arguments: [sys.executable, "-Ic", code, *arguments],
    )
    return await WorkerHandle.start("fake", PLAN, timeouts or Timeouts())


async def answer(worker: WorkerHandle) -> str:
    generation = worker.generate([GenerateRequest(id="1", text="x")])
    text = ""
    while not generation.done:
        text += "".join(delta.text for _, delta in await generation.read())
    return text


FINISH = {
    "reason": "stop",
    "stop_string": None,
    "usage": {"prompt_tokens": 1, "cached_tokens": 0, "completion_tokens": 1, "queue_s": 0,
              "prefill_s": 0, "decode_s": 0},
}  # fmt: skip


async def test_deltas_reach_their_request(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        READY
        + f"""
receive()
send({{"op": "step", "deltas": [["1", ["a", 1]], ["unknown", ["z", 1]]]}})
send({{"op": "step", "deltas": [["1", {{"text": "b", "token_count": 1, "finish": {FINISH!r}}}]]}})
receive()
"""
    )
    worker = await start(monkeypatch, script)
    assert await answer(worker) == "ab"
    await worker.close()


@pytest.mark.parametrize(
    "frame",
    [
        {"op": "step"},
        {"op": "step", "deltas": 3},
        {"op": "step", "deltas": [["1"]]},
        {"op": "step", "deltas": [["1", [3, 1]]]},
        {"op": "step", "deltas": [["1", ["a", "b"]]]},
        {
            "op": "step",
            "deltas": [["1", {"text": "a", "token_count": 1, "finish": {"reason": "stop"}}]],
        },
        {"op": "error", "id": "1"},
        {"op": "reply"},
        {"op": "unheard of"},
        {"no": "op"},
    ],
)
async def test_a_frame_that_makes_no_sense_ends_the_worker(
    monkeypatch: pytest.MonkeyPatch, frame: dict[str, Any]
) -> None:
    worker = await start(monkeypatch, READY + f"receive()\nsend({frame!r})\ntime.sleep(60)\n")
    with pytest.raises(WorkerCrashed, match="an invalid frame"):
        await answer(worker)
    await worker.close()


async def test_an_error_frame_ends_its_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        READY
        + f"""
receive()
receive()
error = {{"code": "invalid_value", "message": "bad prompt", "details": {{}}}}
send({{"op": "error", "id": "1", "error": error}})
send({{"op": "step", "deltas": [["2", {{"text": "b", "token_count": 1, "finish": {FINISH!r}}}]]}})
receive()
"""
    )
    worker = await start(monkeypatch, script)
    first = worker.generate([GenerateRequest(id="1", text="x")])
    second = worker.generate([GenerateRequest(id="2", text="x")])
    with pytest.raises(HearthError, match="bad prompt"):
        await first.read()
    assert (await second.read())[0][1].text == "b"
    await worker.close()


async def test_a_worker_that_dies_fails_every_request_and_says_how(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = await start(monkeypatch, READY + "receive()\nreceive()\nos._exit(3)\n")
    generations = [worker.generate([GenerateRequest(id=str(n), text="x")]) for n in range(2)]
    for generation in generations:
        with pytest.raises(WorkerCrashed) as caught:
            await generation.read()
        assert caught.value.details["exit_code"] == 3
    late = worker.generate([GenerateRequest(id="9", text="x")])
    with pytest.raises(WorkerCrashed):
        await late.read()
    with pytest.raises(WorkerCrashed):
        await worker.stats()
    assert worker.crashed


async def test_a_failed_load_is_the_workers_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
error = {"code": "model_load_failed", "message": "no such tensor", "details": {}}
send({"op": "failed", "error": error})
"""
    with pytest.raises(ModelLoadFailed, match="no such tensor"):
        await start(monkeypatch, script)


async def test_a_crash_in_the_load_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WorkerCrashed, match="exit code 7"):
        await start(monkeypatch, "os._exit(7)")


async def test_a_load_without_progress_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WorkerTimeout, match="no loading progress"):
        await start(monkeypatch, "time.sleep(60)", Timeouts(load_s=0.3))


async def test_steps_that_end_are_no_silence_however_long_the_answer_takes_to_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = (
        READY
        + f"""
receive()
for _ in range(20):
    time.sleep(0.1)
    send({{"op": "step", "deltas": []}})  # and questions are not answered
send({{"op": "step", "deltas": [["1", {{"text": "b", "token_count": 1, "finish": {FINISH!r}}}]]}})
receive()
"""
    )
    monkeypatch.setattr(watchdog, "GRACE_S", 0.05)
    worker = await start(monkeypatch, script, Timeouts(step_s=1.0))
    assert await answer(worker) == "b"
    await worker.close()


LOST = """
receive()
send({"op": "lost"})
for _ in range(LATER):
    send({"op": "lost"})
receive()
send({"op": "reply", "id": "call-1", "result": {"tokens": [1]}})
time.sleep(600)
"""


async def test_a_worker_with_a_lost_thread_ends_what_it_has_begun_and_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = await start(monkeypatch, READY + LOST.replace("LATER", "0"))
    failed = asyncio.Event()
    worker.on_failure(failed.set)
    first = asyncio.create_task(worker.tokenize("a", add_special=False))
    worker._send({"op": "second"})
    assert await first == [1]
    await failed.wait()
    with pytest.raises(WorkerTimeout, match="was stuck on other requests"):
        await worker.tokenize("a", add_special=False)
    await worker.close()


async def test_and_at_once_with_several(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = await start(monkeypatch, READY + LOST.replace("LATER", "2"))
    with pytest.raises(WorkerTimeout, match="was stuck on other requests"):
        await worker.tokenize("a", add_special=False)
    await worker.close()


async def test_a_worker_that_answers_no_more_is_ended_right_after_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = await start(monkeypatch, READY + "time.sleep(600)\n", Timeouts(step_s=1.0))
    began_s = time.monotonic()
    with pytest.raises(WorkerTimeout):
        await answer(worker)
    assert 1.0 <= time.monotonic() - began_s < 1.0 + 1.0
    await worker.close()


async def test_requests_of_a_stuck_worker_do_not_wait_for_its_process_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchdog, "GRACE_S", 0.05)
    kill = WorkerProcess.kill
    monkeypatch.setattr(WorkerProcess, "kill", lambda self: None)  # as on a starved machine
    worker = await start(monkeypatch, READY + "time.sleep(600)\n", Timeouts(step_s=0.2))
    failed, ended = asyncio.Event(), asyncio.Event()
    worker.on_failure(failed.set)
    worker.on_end(ended.set)
    with pytest.raises(WorkerTimeout, match="HEARTH_STEP_TIMEOUT"):
        await answer(worker)
    await failed.wait()
    assert not ended.is_set()
    kill(worker._process)
    await ended.wait()
    assert worker.crashed


async def test_a_worker_that_ignores_the_shutdown_is_ended_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = await start(monkeypatch, READY + "time.sleep(60)\n")
    began = asyncio.get_running_loop().time()
    await worker.close()
    assert asyncio.get_running_loop().time() - began < 45
    assert not worker.crashed


async def test_a_worker_is_closed_also_where_nothing_awaits_its_end_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = await start(monkeypatch, READY + "sock.close(); time.sleep(600)\n")
    while worker._reaper is None:  # noqa: ASYNC110 (a task that is not there yet)
        await asyncio.sleep(0)
    worker._reaper.cancel()  # as asyncio.run does with every task when a second signal came
    await asyncio.wait_for(worker.close(), 60)
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)


async def test_a_cancelled_generation_sends_cancel_for_what_still_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = (
        READY
        + """
ids = [receive()["id"], receive()["id"]]
cancels = [receive(), receive()]
assert [frame["op"] for frame in cancels] == ["cancel", "cancel"]
call = receive()
send({"op": "reply", "id": call["id"], "result": [frame["id"] for frame in cancels]})
receive()
"""
    )
    worker = await start(monkeypatch, script)
    worker.generate([GenerateRequest(id="1", text="x"), GenerateRequest(id="2", text="x")]).cancel()
    assert await worker.call("stats") == ["1", "2"]
    await worker.close()


async def test_a_request_that_no_frame_can_hold_is_refused_and_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = await start(monkeypatch, READY + "while receive()['op'] != 'shutdown': pass")
    monkeypatch.setattr(encoded_frame, "MAX_FRAME_BYTES", 4000)
    asked = [GenerateRequest(id=str(number), text="x" * 5000) for number in range(2)]
    generation = worker.generate(asked)
    with pytest.raises(InvalidRequest, match="too large for one message"):
        await generation.read()
    with pytest.raises(InvalidRequest, match="too large for one message"):
        await worker.count(asked[0])
    assert not worker.busy
    await worker.close()


async def test_a_worker_is_told_what_its_cache_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        READY
        + "for tokens in (500, 900):\n"
        + "    receive()\n"
        + "    send({'op': 'grow', 'tokens': tokens})\n"
        + "    got = receive()\n"
        + "    send({'op': 'reply', 'id': f'call-{tokens}', 'result': got})\n"
        + "receive()\n"
    )
    worker = await start(monkeypatch, script)
    asked: list[int] = []

    async def grow(tokens: int) -> int:
        asked.append(tokens)
        return 2 * tokens

    for tokens, granted in ((500, PLAN.pool_tokens), (900, 1800)):  # at first by nobody
        assert await worker._call(f"call-{tokens}", "stats", {}) == {
            "op": "grant",
            "id": "grow",
            "pool_tokens": granted,
        }
        worker.grow_pool = grow
    assert asked == [900]
    await worker.close()
