"""Bodies that cost the event loop more than they are worth, on every route that takes JSON: nobody
else waits for them, and the memory for all of them is bounded."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import resource
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from runner.server.app import ROUTES
from runner.server.routes import RouteSpec
from tests.attack.loop_times import VARIABLE, longest_s
from tests.conftest import RunningDaemon, running_daemon

MAX_CALLBACK_S = 0.1  # of processor time: seen are 0.02; a slow machine may take several times that
MAX_REFUSAL_S = 1.0  # of processor time, of the daemon and its worker together
MIB = 1 << 20
TIMEOUT_S = 240.0


@dataclass(frozen=True, slots=True)
class Target:
    """A route: its field with the most items, what else it needs, and an item that fits."""

    field: str
    rest: str
    item: str

    def body(self, value: str, more: str = "") -> bytes:
        """A body with value in the field."""
        return f'{{{self.rest}{more},"{self.field}":{value}}}'.encode()


MESSAGE = '{"role":"user","content":"a"}'
ONE = '"model":"echo","max_tokens":1'
OLLAMA = '"model":"echo","stream":false,"options":{"num_predict":1}'
TARGETS = {
    "/v1/chat/completions": Target("messages", ONE, MESSAGE),
    "/api/chat": Target("messages", OLLAMA, MESSAGE),
    "/v1/messages": Target("messages", ONE, MESSAGE),
    "/v1/responses": Target("input", '"model":"echo","store":false', MESSAGE),
    "/v1/completions": Target("prompt", ONE, '"a"'),
    "/api/generate": Target("context", f'{OLLAMA},"prompt":"a"', "1"),
    "/v1/embeddings": Target("input", '"model":"echo"', '"a"'),
    "/api/embed": Target("input", '"model":"echo"', '"a"'),
    "/tokenize": Target("messages", '"model":"echo"', MESSAGE),
    "/detokenize": Target("tokens", '"model":"echo"', "1"),
    "/apply-template": Target("messages", '"model":"echo"', MESSAGE),
    "/infill": Target("input_extra", f'{ONE},"input_prefix":"","input_suffix":""', '{"text":"a"}'),
    "/v1/rerank": Target("documents", '"model":"echo","query":"a"', '"a"'),
    "/v1/score": Target("text_2", '"model":"echo","text_1":"a"', '"a"'),
    "/v1/watermark/detect": Target("tokens", '"model":"echo"', "1"),
    "/api/distill": Target("answer", '"model":"echo","name":"x","text":"x","student":{}', '"a"'),
    "/api/create": Target("messages", '"model":"x","from":"echo"', MESSAGE),
}
QUICK = ("/v1/chat/completions", "/api/chat", "/v1/responses", "/tokenize")


def shapes(target: Target, count: int) -> Iterator[tuple[str, bytes]]:
    """Bodies with so many of something, by what it is."""

    def many(item: str) -> str:
        return "[" + ",".join([item] * count) + "]"

    def keys(value: str) -> str:
        return "{" + ",".join(f'"k{number}":{value}' for number in range(count)) + "}"

    wrong = '"x"' if target.item == "1" else "1"
    one, tool = f"[{target.item}]", '{"type":"function","function":{"name":"f"}}'
    yield "wrong items", target.body(many(wrong))
    yield "empty objects", target.body(many("{}"))
    yield "empty lists", target.body(many("[]"))
    yield "right items", target.body(many(target.item))
    yield "a wrong item at the end", target.body(many(target.item)[:-1] + ",{}]")
    yield "keys in place of items", target.body(keys("1"))
    yield "unknown fields", target.body(one, "," + keys("1")[1:-1])
    yield "one field many times", target.body(one, f",{target.rest}" * (count // 10))
    yield "wrong parts", target.body(f'[{{"role":"user","content":{many("1")}}}]')
    part = '{"type":"text","text":"a"}'
    yield "parts", target.body(f'[{{"role":"user","content":{many(part)}}}]')
    yield "tools", target.body(one, f',"tools":{many(tool)}')
    yield "wrong tools", target.body(one, f',"tools":{many("1")}')
    yield "options", target.body(one, f',"options":{keys("1")}')
    yield "stop strings", target.body(one, f',"stop":{many(wrong)},"stop_sequences":{many(wrong)}')
    yield "biases", target.body(one, f',"logit_bias":{many("[1,1]")}')
    yield "images", target.body(one, f',"images":{many(chr(34) * 2)}')
    yield "depth", target.body("[" * count + "]" * count)


def texts(target: Target, size: int) -> Iterator[tuple[str, bytes]]:
    """Bodies with a text of so many bytes, by what it is made of."""
    made = (
        ("letters", "a"),
        ("escapes", "\\n"),
        ("numbers", "\\u4e2d"),
        ("no ASCII", "\U0001f600"),
    )
    for name, unit in made:
        text = '"' + unit * (size // len(unit.encode())) + '"'
        yield name, target.body(f"[{target.item.replace(chr(34) + 'a' + chr(34), text)}]")
    wide = '"\U0001f600' + "a" * size + '"'
    yield "one wide letter", target.body(f"[{target.item.replace(chr(34) + 'a' + chr(34), wide)}]")
    yield "a key", target.body(f"[{target.item}]", f',"{"a" * size}":1')
    yield "a number", target.body(f"[{target.item}]", f',"seed":{"9" * size}')
    yield "the model's name", target.body(f"[{target.item}]", f',"model":"{"a" * size}"')


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    home = tmp_path_factory.mktemp("bodies")
    # a worker that is measured must not end as idle, while a busy machine takes minutes
    env = {VARIABLE: str(home / "times"), "HEARTH_KEEP_ALIVE": "-1"}
    with running_daemon(home, ("echo",), env) as running:
        assert post(running, "/api/chat", TARGETS["/api/chat"].body(f"[{MESSAGE}]"))[0] == 200
        longest_s(home / "times")
        yield running


def post(daemon: RunningDaemon, path: str, body: bytes) -> tuple[int, bytes]:
    """The answer to a body that may be refused before it is sent."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request("POST", path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()


def workers(daemon: RunningDaemon) -> list[int]:
    """The ids of its processes."""
    children = Path(f"/proc/{daemon.pid}/task").glob("*/children")
    return [int(pid) for each in children for pid in each.read_text().split()]


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """What a process has: VmRSS now, VmHWM at most since it was reset. 0: it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(field)), 0.0)


def worked_s(pid: int) -> float:
    """The processor time of a process. 0: it has ended."""
    try:
        return sum(psutil.Process(pid).cpu_times()[:2])
    except psutil.NoSuchProcess:
        return 0.0


def check_cost(daemon: RunningDaemon, path: str, name: str, body: bytes) -> None:
    """That the daemon has worked at no time for long, and that neither it nor a worker has used
    more than four times the body and its answer; for a refusal also not much time in all."""
    pids = [daemon.pid, *workers(daemon)]
    before_mib = [memory_mib(pid) for pid in pids]
    began_s = sum(map(worked_s, pids))
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")
    status, answer = post(daemon, path, body)
    worked = sum(map(worked_s, pids)) - began_s
    taken_s = longest_s(daemon.home / "times")
    peaks = zip(pids, before_mib, strict=True)
    grown_mib = max(memory_mib(pid, "VmHWM") - before for pid, before in peaks)
    where = (
        f"{path}, {name}: {taken_s:.3f} s at once, {worked:.2f} s in all, {grown_mib:.0f} MiB,"
        f" {status} {answer[:200]!r}"
    )
    assert status < 500, where
    assert taken_s < MAX_CALLBACK_S, where
    assert grown_mib < 4 * (len(body) + len(answer)) / MIB + 40, where
    assert status == 200 or len(answer) < 1500, where
    assert status == 200 or worked < MAX_REFUSAL_S, where


@pytest.mark.parametrize(
    "path",
    [
        *QUICK,
        *(pytest.param(path, marks=pytest.mark.long) for path in TARGETS if path not in QUICK),
    ],
)
def test_no_body_holds_the_loop_or_takes_more_memory_than_its_size_says(
    daemon: RunningDaemon, path: str
) -> None:
    for name, body in shapes(TARGETS[path], 50_000):
        check_cost(daemon, path, name, body)


@pytest.mark.slow
@pytest.mark.parametrize("path", TARGETS)
@pytest.mark.parametrize("count", [4_000, 16_000, 250_000, 2_000_000])
def test_no_body_of_any_size_holds_the_loop(daemon: RunningDaemon, path: str, count: int) -> None:
    for name, body in shapes(TARGETS[path], count):
        check_cost(daemon, path, name, body)


@pytest.mark.slow
@pytest.mark.parametrize("path", TARGETS)
def test_no_long_text_holds_the_loop(daemon: RunningDaemon, path: str) -> None:
    for name, body in texts(TARGETS[path], 7 * MIB):
        check_cost(daemon, path, name, body)


@pytest.mark.slow
@pytest.mark.parametrize(
    "route", [route for route in ROUTES if isinstance(route.takes, type)], ids=lambda r: r.path
)
def test_no_field_of_any_route_holds_the_loop(daemon: RunningDaemon, route: RouteSpec) -> None:
    assert isinstance(route.takes, type)
    path = re.sub(r"{.*?}", "x", route.path)
    fields = {field.alias or name: field for name, field in route.takes.model_fields.items()}
    given: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": "a"}],
                             "options": {"num_predict": 1}, "max_tokens": 1}  # fmt: skip
    known = {name: given.get(name, "a") for name in fields
             if name in given or fields[name].is_required()}  # fmt: skip
    values = {
        "text": "a" * (7 * MIB),
        "list": ["ab"] * 200_000,
        "object": {f"k{number}": "v" for number in range(60_000)},
        "objects": [{"type": "text"}] * 16_000,
    }
    for name in fields:
        for kind, value in values.items():
            if name != "stream":
                body = json.dumps({**known, name: value}).encode()
                check_cost(daemon, path, f"{name} as {kind}", body)


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize(("letter", "times"), [("a", 3), ("\u4e2d", 3), ("\U0001f600", 7)])
def test_a_prompt_that_cannot_fit_is_copied_by_no_template(
    daemon: RunningDaemon, role: str, letter: str, times: float
) -> None:
    """times: its size, in the daemon and in the worker. Of one wide letter Python makes four bytes
    of each."""
    text = letter * (7 * MIB // len(letter.encode()))
    if letter > "\uffff":
        text = letter + "a" * (7 * MIB)
    messages = f'{{"role":"{role}","content":"{text}"}},{MESSAGE}'
    body = TARGETS["/apply-template"].body(f"[{messages}]")
    pids = [daemon.pid, *workers(daemon)]
    before_mib = [memory_mib(pid) for pid in pids]
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")
    status, answer = post(daemon, "/apply-template", body)
    peaks = zip(pids, before_mib, strict=True)
    grown_mib = max(memory_mib(pid, "VmHWM") - before for pid, before in peaks)
    assert (status, b"maximum context length is" in answer) == (400, True)
    assert grown_mib < times * len(body) / MIB


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_many_answers_to_a_long_prompt_are_sent_to_the_worker_one_by_one(
    daemon: RunningDaemon, path: str
) -> None:
    target = TARGETS[path]
    text = target.item.replace('"a"', '"' + "a b " * MIB + '"')
    check_cost(daemon, path, "n=128", target.body(f"[{text}]", ',"n":128'))


def test_images_are_decoded_beside_the_loop(daemon: RunningDaemon) -> None:
    image = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(14 * MIB)).decode()
    body = TARGETS["/api/chat"].body(f'[{{"role":"user","images":["{image}","{image}"]}}]')
    check_cost(daemon, "/api/chat", "images", body)


@pytest.mark.parametrize("letter", ["\U0001f600", "\\ud83d\\ude00"])
@pytest.mark.parametrize("first", [True, False])
def test_a_text_with_a_wide_letter_passes_for_no_image(
    daemon: RunningDaemon, letter: str, first: bool
) -> None:
    """Of one word it is as long as images may be, and Python would take four bytes a letter."""
    words = "a" * (24 * MIB)
    text = letter + words if first else words + letter
    body = TARGETS["/api/chat"].body(f'[{{"role":"user","content":"{text}"}}]')
    before_mib = memory_mib(daemon.pid)
    Path(f"/proc/{daemon.pid}/clear_refs").write_text("5")
    status, answer = post(daemon, "/api/chat", body)
    assert (status, b"more than 8 MiB beside its images" in answer) == (413, True)
    assert memory_mib(daemon.pid, "VmHWM") - before_mib < (20 if first else 60)


@pytest.mark.parametrize("path", ["/tokenize", "/v1/watermark/detect"])
def test_a_text_of_more_tokens_than_letters_is_refused(daemon: RunningDaemon, path: str) -> None:
    field = "content" if path == "/tokenize" else "text"
    text = "\\ud83d\\ude00" * (MIB // 4 + 1)
    check_cost(daemon, path, "wide", f'{{"model":"echo","{field}":"{text}"}}'.encode())
    status, answer = post(daemon, path, f'{{"model":"echo","{field}":"{text}"}}'.encode())
    assert (status, b"at most 1048576 are tokenized at once" in answer) == (400, True)


def test_only_so_many_tokens_are_searched_for_a_watermark(daemon: RunningDaemon) -> None:
    def detected(count: int) -> tuple[int, bytes]:
        body = json.dumps({"model": "echo", "text": "a" * count}).encode()
        check_cost(daemon, "/v1/watermark/detect", f"{count} tokens", body)
        return post(daemon, "/v1/watermark/detect", body)

    assert detected(1 << 16)[0] == 200
    status, answer = detected((1 << 16) + 1)
    assert (status, b"65537 tokens; at most 65536" in answer) == (400, True)
    body = b'{"model":"echo","tokens":[1,2147483648]}'
    assert post(daemon, "/v1/watermark/detect", body)[0] == 400


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/nowhere"])
def test_a_body_in_chunks_of_a_byte_ends_its_connection(daemon: RunningDaemon, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", daemon.port), TIMEOUT_S) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        with contextlib.suppress(OSError):  # it is closed before all of them are sent
            connection.sendall(b"1\r\n \r\n" * 600_000)
            assert not connection.recv(1 << 20).startswith(b"HTTP/1.1 200")
            while connection.recv(1 << 20):
                pass
    assert longest_s(daemon.home / "times") < MAX_CALLBACK_S


def test_a_body_in_chunks_of_usual_size_is_read(daemon: RunningDaemon) -> None:
    body = TARGETS["/api/chat"].body(f"[{MESSAGE}]", f',"more":"{"a" * 300_000}"')
    pieces = [body[start : start + 512] for start in range(0, len(body), 512)]
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", daemon.port)) as connection:
        headers = {"content-type": "application/json"}
        connection.request("POST", "/api/chat", iter(pieces), headers, encode_chunked=True)
        assert connection.getresponse().status == 200


def test_unfinished_bodies_hold_a_bounded_memory_and_give_it_back(daemon: RunningDaemon) -> None:
    before_mib, size = memory_mib(daemon.pid), 7 * MIB
    head = f"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size + 1}\r\n\r\n"
    refused = 0
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            connection = socket.create_connection(("127.0.0.1", daemon.port), TIMEOUT_S)
            stack.enter_context(connection)
            with contextlib.suppress(OSError):  # refused before all of it is sent
                connection.sendall(head.encode() + b" " * size)
        assert post(daemon, "/api/chat", TARGETS["/api/chat"].body(f"[{MESSAGE}]"))[0] == 200
        status, answer = post(daemon, "/api/chat", b'{"a":"' + b"a" * size + b'"}')
        refused += status == 503 and b"at most 512 MiB" in answer
        assert memory_mib(daemon.pid) < before_mib + 256
    assert refused
    deadline_s = time.monotonic() + 60
    while memory_mib(daemon.pid) > before_mib + 40:  # the daemon hears of 40 closed connections
        assert time.monotonic() < deadline_s


@pytest.mark.slow
def test_thousands_of_small_unfinished_bodies_stay_below_a_gibibyte(daemon: RunningDaemon) -> None:
    before_mib, size = memory_mib(daemon.pid), 60 * 1024
    head = f"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size + 1}\r\n\r\n"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(4_096):
            with contextlib.suppress(OSError):  # a client may not have so many
                connection = socket.create_connection(("127.0.0.1", daemon.port), TIMEOUT_S)
                stack.enter_context(connection)
                connection.sendall(head.encode() + b" " * size)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", daemon.port)) as client:
        client.request("GET", "/health")
        assert client.getresponse().status == 200
    assert memory_mib(daemon.pid, "VmHWM") < 1024
    deadline_s = time.monotonic() + 60
    while memory_mib(daemon.pid) > before_mib + 80:  # the heap is trimmed every 10 s
        assert time.monotonic() < deadline_s


def test_many_vectors_do_not_hold_the_loop(daemon: RunningDaemon) -> None:
    """800,000 numbers: what 2,048 inputs have with a model of width 384."""
    times = daemon.home / "times"
    longest_s(times)
    texts, tokens = json.dumps(["a"] * 2048), json.dumps([[1] * 24] * 2000)
    for path, body in (
        ("/v1/embeddings", f'{{"model":"echo","input":{texts}}}'),
        ("/api/embed", f'{{"model":"echo","dimensions":8,"input":{texts}}}'),
        ("/embedding", f'{{"model":"echo","pooling":"none","input":{tokens}}}'),
    ):
        status, answer = post(daemon, path, body.encode())
        assert status == 200, answer[:200]
        assert longest_s(times) < MAX_CALLBACK_S, path
