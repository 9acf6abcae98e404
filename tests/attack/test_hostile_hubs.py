"""Hubs, registries and web servers that answer what they must not."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from registry.manifest import CONFIG_TYPE, MANIFEST_TYPE, MODEL_TYPE
from tests.attack.image_files import inflated
from tests.conftest import RunningDaemon, StartDaemon, running_daemon
from tests.echo_models import echo_gguf
from tests.hostile_server import HostileServer, Raw, hostile_server, reply
from tests.hub_server import hub_environment

GGUF = echo_gguf()
SIZE = len(GGUF)
SHA256 = hashlib.sha256(GGUF).hexdigest()
COMMIT = "0" * 40
MAX_TAKEN_BYTES = 512 << 20
MAX_GROWTH_BYTES = 256 << 20
NOT_FAULTS = (502, 504, 507)
Answer = Callable[[str], Raw]  # from the path that is asked for


def file(path: Any, size: Any = SIZE, sha256: Any = SHA256) -> dict[str, Any]:
    return {"rfilename": path, "size": size, "lfs": {"sha256": sha256, "size": size,
            "pointerSize": 130}}  # fmt: skip


def repository(siblings: Any, **more: Any) -> bytes:
    value = {"id": "case/x", "modelId": "case/x", "sha": COMMIT, "siblings": siblings, **more}
    return reply(200, json.dumps(value).encode(), "Content-Type: application/json")


def always(answer: Raw) -> Answer:
    return lambda _: answer


def endless(head: bytes, part: bytes = b"a" * 65536) -> Answer:
    return lambda _: itertools.chain([head], itertools.repeat(part, 1 << 16))


def redirect(target: str | None) -> Answer:
    return always(reply(302, b"", *([] if target is None else [f"Location: {target}"])))


def chunked(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body


ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
BOMB = inflated(200, gzip=True)
# What any question may be answered with, whether it is for a list, a manifest or a file.
ANYWHERE: dict[str, Answer] = {
    "nothing": always(b""),
    "closed in the status": always(b"HTTP/1.1 20"),
    "closed in the head": always(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "closed in the body": always(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
    "no HTTP": always(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "status 999": always(b"HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n"),
    "status 100 for ever": lambda _: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n", 100_000),
    "status 204": always(b"HTTP/1.1 204 X\r\n\r\n"),
    "status 304": always(b"HTTP/1.1 304 X\r\n\r\n"),
    "status 416": always(reply(416)),
    "status 500": always(reply(500, b"{" * 100_000)),
    "100,000 headers": always(
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(100_000)) + b"\r\n{}"
    ),
    "endless header": endless(b"HTTP/1.1 200 OK\r\nX-A: "),
    "header with NUL": always(b"HTTP/1.1 200 OK\r\nX-A: \0\r\nContent-Length: 2\r\n\r\n{}"),
    "two lengths": always(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 9\r\n\r\n{}"),
    "length -1": always(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}"),
    "length of 30 digits": always(
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n{}"
    ),
    "bad chunk": always(chunked(b"zz\r\n{}\r\n0\r\n\r\n")),
    "huge chunk": always(chunked(b"ffffffffffffffffff\r\n{}")),
    "endless body": endless(ENDLESS),
    "compressed bomb": always(reply(200, BOMB, "Content-Encoding: gzip")),
    "unknown coding": always(reply(200, b"{}", "Content-Encoding: br, gzip, x")),
    "not JSON": always(reply(200, b"<html>")),
    "not UTF-8": always(reply(200, b'{"a": "\xff\xfe"}')),
    "NaN": always(reply(200, b'{"siblings": NaN, "schemaVersion": Infinity}')),
    "deep JSON": always(reply(200, b'{"siblings":' + b"[" * 200_000)),
    "deep closed JSON": always(reply(200, b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}")),
    "huge number": always(reply(200, b'{"schemaVersion": ' + b"9" * 5000 + b"}")),
    "JSON null": always(reply(200, b"null")),
    "JSON list": always(reply(200, b"[[]]")),
    "JSON string": always(reply(200, b'"x"')),
    "denied with a challenge": always(
        reply(401, b"", 'WWW-Authenticate: Bearer realm="data:,x",service="\x01",scope=')
    ),
    "challenge at a closed port": always(
        reply(401, b"", 'WWW-Authenticate: Bearer realm="http://127.0.0.1:1/token",service="s"')
    ),
    "challenge at port 99999": always(
        reply(401, b"", 'WWW-Authenticate: Bearer realm="http://127.0.0.1:99999/",service="s"')
    ),
    "retry after years": always(reply(429, b"", "Retry-After: 99999999999999999999")),
    "redirect to data:": redirect("data:application/json,{}"),
    "redirect to file:": redirect("file:///etc/passwd"),
    "redirect to ftp:": redirect("ftp://127.0.0.1/x"),
    "redirect to port 99999": redirect("http://127.0.0.1:99999/x"),
    "redirect to port 0": redirect("http://127.0.0.1:0/x"),
    "redirect to port -1": redirect("http://127.0.0.1:-1/x"),
    "redirect to a closed port": redirect("http://127.0.0.1:1/x"),
    "redirect to no host": redirect("http:///x"),
    "redirect to a bad host": redirect("http://[::1/x"),
    "redirect to a host that cannot be": redirect("http://xn--\xff/x"),
    "redirect with a password": redirect("http://u:p@127.0.0.1/x"),
    "redirect to control characters": redirect("http://127.0.0.1/\x01\x7f"),
    "redirect to 100 KiB": redirect("/" + "a" * 100_000),
    "redirect without a place": redirect(None),
    "redirect to nothing": redirect(""),
    "redirect to itself": lambda path: reply(302, b"", f"Location: {path}"),
    "redirect on and on": lambda path: reply(302, b"", f"Location: {path}/1"),
}
LISTS: dict[str, Answer] = {
    name: always(repository(siblings))
    for name, siblings in {
        "a number": 7,
        "text": "x.gguf",
        "an object": {"rfilename": "x.gguf"},
        "of numbers": [1, 2, 3],
        "of lists": [[["x.gguf"]]],
        "of nulls": [None],
        "empty": [],
        "without names": [{"size": 1}],
        "name is a number": [file(7)],
        "name is null": [file(None)],
        "name is a list": [file(["x.gguf"])],
        "name is empty": [file("")],
        "names with ..": [file("../../../../tmp/x.gguf")],
        "absolute name": [file("/etc/x.gguf")],
        "name of a drive": [file("C:\\x.gguf")],
        "name with NUL": [file("a\0b.gguf")],
        "name with control characters": [file("\x1b]0;x\x07\r\n.gguf")],
        "name with a surrogate": [file("\ud800.gguf")],
        "name of 100 KiB": [file("a" * 100_000 + ".gguf")],
        "name with ? and #": [file("a?b#c%00%2e%2e/.gguf")],
        "the same name twice": [file("x.gguf"), file("x.gguf", 1, "0" * 64)],
        "names that differ in case": [file("x.gguf"), file("X.GGUF", 1, "0" * 64)],
        "size -1": [file("x.gguf", -1)],
        "size is huge": [file("x.gguf", 2**70)],
        "size beyond disks": [file("x.gguf", 2**60)],
        "size is text": [file("x.gguf", "12")],
        "size is a fraction": [file("x.gguf", 1.5)],
        "size is true": [file("x.gguf", True)],
        "size is 0": [file("x.gguf", 0)],
        "size is too small": [file("x.gguf", len(GGUF) - 1)],
        "size is too large": [file("x.gguf", len(GGUF) + 1)],
        "digest is short": [file("x.gguf", sha256="00")],
        "digest is a number": [file("x.gguf", sha256=7)],
        "digest is a path": [file("x.gguf", sha256="../" * 21 + "x")],
        "digest is wrong": [file("x.gguf", sha256="0" * 64)],
        "lfs is text": [{"rfilename": "x.gguf", "size": 5, "lfs": "x"}],
        "lfs is empty": [{"rfilename": "x.gguf", "size": 5, "lfs": {}}],
        "30,000 files": [file(f"x{n}.gguf") for n in range(30_000)],
        "99,999 parts": [file("x-00001-of-99999.gguf")],
        "part 0": [file("x-00000-of-00000.gguf")],
        "safetensors without config": [file("model.safetensors")],
        "index and adapter": [file("adapter_model.safetensors"), file("adapter_config.json", 2)],
    }.items()
} | {
    "id is a number": always(repository([file("x.gguf")], id=7, modelId=[])),
    "sha is a path": always(repository([file("x.gguf")], sha="../../x")),
    "sha is a number": always(repository([file("x.gguf")], sha=7)),
    "tags are a number": always(repository([file("x.gguf")], tags=7)),
    "tags are numbers": always(repository([file("x.gguf")], tags=[1, None, {}])),
    "dates are none": always(repository([file("x.gguf")], lastModified="x", createdAt=7)),
    "cards are text": always(
        repository([file("x.gguf")], cardData="x", config="x", gguf=7, safetensors=[1])
    ),
}  # fmt: skip


def manifest(**fields: Any) -> Answer:
    digest = f"sha256:{SHA256}"
    layer = {"mediaType": MODEL_TYPE, "digest": digest, "size": len(GGUF)}
    config = {"mediaType": CONFIG_TYPE, "digest": digest, "size": len(GGUF)}
    value = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": [layer]}
    return always(reply(200, json.dumps({**value, **fields}).encode()))


def layer(**fields: Any) -> Answer:
    known = {"mediaType": MODEL_TYPE, "digest": f"sha256:{SHA256}", "size": len(GGUF)}
    return manifest(layers=[{**known, **fields}])


DOCKER = {"mediaType": "application/vnd.docker.ai.model.config.v0.1+json", "size": 2,
          "digest": f"sha256:{SHA256}"}  # fmt: skip
MANIFESTS: dict[str, Answer] = {
    "layers are text": manifest(layers="x"),
    "layers are numbers": manifest(layers=[1]),
    "no layers": manifest(layers=[]),
    "10,000 layers": manifest(layers=[{}] * 10_000),
    "config is a list": manifest(config=[]),
    "version is text": manifest(schemaVersion="2"),
    "type is a list": layer(mediaType=["x"]),
    "media type is a list": manifest(mediaType=[1]),
    "digest is a path": layer(digest="sha256:../../../etc/passwd"),
    "digest is a number": layer(digest=7),
    "digest of another": layer(digest="sha256:" + "0" * 64),
    "size is -1": layer(size=-1),
    "size is text": layer(size="1"),
    "size is huge": layer(size=2**60),
    "size is wrong": layer(size=3),
    "name is a list": layer(name=[1]),
    "from is a path": layer(**{"from": "/etc/passwd"}),
    "artifact type is a list": manifest(artifactType=[1]),
    "artifact without layers": manifest(config=DOCKER, layers=[]),
    "artifact of notes that are numbers": manifest(
        config=DOCKER,
        layers=[
            {
                "mediaType": "application/vnd.docker.ai.model.file",
                "digest": f"sha256:{SHA256}",
                "size": 3,
                "annotations": {"org.cncf.model.filepath": 7},
            }
        ],
    ),
    "artifact whose notes are a list": manifest(
        config=DOCKER,
        layers=[
            {
                "mediaType": "application/vnd.docker.ai.gguf.v3",
                "digest": f"sha256:{SHA256}",
                "size": 3,
                "annotations": [1],
            }
        ],
    ),
    "artifact with ..": manifest(
        config=DOCKER,
        layers=[
            {
                "mediaType": "application/vnd.docker.ai.model.file",
                "digest": f"sha256:{SHA256}",
                "size": len(GGUF),
                "annotations": {"org.cncf.model.filepath": "../../x.safetensors"},
            }
        ],
    ),
}


def ranged(content_range: str, body: bytes = b"G") -> Answer:
    return always(reply(206, body, f"Content-Range: {content_range}"))


FILES: dict[str, Answer] = {
    "no length": always(b"HTTP/1.1 200 OK\r\n\r\nGGUF"),
    "range of nothing": ranged(""),
    "range of text": ranged("bytes x-y/z"),
    "range of another": ranged("bytes 7-9/20"),
    "range of 0 bytes": ranged("bytes 0-0/0", b""),
    "range beyond disks": ranged("bytes 0-0/1125899906842625"),
    "range of half of all that there is": ranged("bytes 0-0/1125899906842624"),
    "range of unknown length": ranged("bytes 0-0/*"),
    "range that ends before it begins": ranged("bytes 9-0/10"),
    "range of 30 digits": ranged("bytes 0-0/" + "9" * 30),
    "range of other digits": ranged("bytes 0-0/\u0664".encode().decode("latin-1")),
    "more than promised": ranged(f"bytes 0-0/{len(GGUF)}", GGUF * 3),
    "tag of control characters": always(
        reply(206, b"G", f"Content-Range: bytes 0-0/{len(GGUF)}", "ETag: \x1b[2J" + "e" * 9000)
    ),
    "no model": always(reply(200, b"not a model at all")),
}
MEMBERS = {
    **{f"hub: {name}": ("hub", answer) for name, answer in {**ANYWHERE, **LISTS}.items()},
    **{f"content: {name}": ("content", answer) for name, answer in {**ANYWHERE, **FILES}.items()},
    **{
        f"registry: {name}": ("registry", answer)
        for name, answer in {**ANYWHERE, **MANIFESTS}.items()
    },
    **{f"file: {name}": ("file", answer) for name, answer in {**ANYWHERE, **FILES}.items()},
}
NAMES = sorted(MEMBERS)


def route(path: str, head: bytes) -> Raw:
    """The case is in the path; content of a hub's good list, and blobs, come as they should."""
    found = re.search(r"/any/case(\d+)", path)
    if found is None:  # a redirect's target
        return reply(404)
    kind, answer = MEMBERS[NAMES[int(found[1])]]
    if kind == "content" and path.startswith("/api/"):  # each another file, lest they share it
        digest = hashlib.sha256(found[1].encode()).hexdigest()
        return repository([file("x.gguf", sha256=digest)])
    if kind in ("hub", "registry") and ("/resolve/" in path or "/blobs/" in path):
        return whole(head)
    return answer(path)


def whole(head: bytes) -> bytes:
    """The model's content, in ranges."""
    asked = [line for line in head.split(b"\r\n") if line.lower().startswith(b"range: bytes=")]
    if not asked:
        return reply(200, GGUF)
    first, last = asked[0].partition(b"=")[2].split(b"-")
    start, stop = int(first), min(int(last) + 1, len(GGUF))
    told = f"Content-Range: bytes {start}-{stop - 1}/{len(GGUF)}"
    return reply(206, GGUF[start:stop], told)


def reference(number: int, server: HostileServer) -> str:
    kind, _ = MEMBERS[NAMES[number]]
    if kind in ("hub", "content"):
        return f"hf.co/any/case{number}"
    if kind == "registry":
        return f"127.0.0.1:{server.port}/any/case{number}"
    return f"{server.url}/any/case{number}.gguf"


@pytest.fixture
def hub() -> Iterator[HostileServer]:
    with hostile_server(route) as server:
        yield server


@pytest.fixture
def daemon(start_daemon: StartDaemon, hub: HostileServer, tmp_path: Path) -> RunningDaemon:
    return start_daemon(env=hub_environment(hub.url, tmp_path))


async def pull_all(
    daemon: RunningDaemon, hub: HostileServer, numbers: Sequence[int]
) -> dict[str, tuple[int, str]]:
    """What the daemon says to the pull of each case."""
    some = asyncio.Semaphore(24)

    async def pull(number: int) -> tuple[int, str]:
        async with some:
            body = {"model": reference(number, hub), "stream": False}
            answer = await http.post("/api/pull", json=body)
            return answer.status_code, answer.text

    async with httpx.AsyncClient(base_url=daemon.url, timeout=300, trust_env=False) as http:
        answers = await asyncio.gather(*(pull(number) for number in numbers))
    return {NAMES[number]: answer for number, answer in zip(numbers, answers, strict=True)}


def check(daemon: RunningDaemon, hub: HostileServer, numbers: Sequence[int]) -> None:
    process = psutil.Process(daemon.pid)
    before = process.memory_info().rss
    answers = asyncio.run(pull_all(daemon, hub, numbers))
    grown = process.memory_info().rss - before
    faults = {
        name: answer
        for name, answer in answers.items()
        if answer[0] >= 500 and answer[0] not in NOT_FAULTS
    }
    assert faults == {}
    for status, text in answers.values():
        assert status == 200 or json.loads(text)["error"]
    assert hub.sent_bytes < MAX_TAKEN_BYTES
    assert grown < MAX_GROWTH_BYTES
    assert not [line for line in daemon.lines if "Traceback" in line]
    with daemon.client() as http:
        asked = {"model": "echo", "prompt": "hi", "stream": False}
        assert http.post("/api/generate", json=asked).status_code == 200


@pytest.mark.long
def test_no_list_or_manifest_is_a_fault_of_the_daemon(
    daemon: RunningDaemon, hub: HostileServer
) -> None:
    quick = {f"hub: {name}" for name in (*ANYWHERE, *LISTS) if "endless" not in name}
    quick |= {f"registry: {name}" for name in MANIFESTS}
    quick -= {f"hub: size is {what}" for what in ("too large", "beyond disks")}  # 40 s of attempts
    check(daemon, hub, [number for number, name in enumerate(NAMES) if name in quick])


@pytest.mark.slow
def test_no_answer_of_a_hub_is_a_fault_of_the_daemon(
    daemon: RunningDaemon, hub: HostileServer
) -> None:
    # A download leaves a server alone for as long as it asks, 5 minutes at a time.
    patient = "content: retry after years"
    check(daemon, hub, [number for number, name in enumerate(NAMES) if name != patient])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/pull", {"model": "http://127.0.0.1:{}/x.gguf", "stream": False}),
        ("/api/pull", {"model": "127.0.0.1:{}/any/x", "stream": False}),
        ("/api/create", {"model": "x", "from": "http://127.0.0.1:{}/x.gguf", "stream": False}),
        ("/api/login", {"host": "127.0.0.1:{}", "username": "a", "password": "b"}),
    ],
)
def test_a_place_that_cannot_be_reached_is_told(
    shared_online: RunningDaemon, path: str, body: dict[str, Any]
) -> None:
    with shared_online.client() as http:
        for port in (1, 0, 65536, 99999, -1):
            sent = {key: value.format(port) if isinstance(value, str) else value
                    for key, value in body.items()}  # fmt: skip
            answer = http.post(path, json=sent)
            assert answer.status_code == (502 if port == 1 else 400), answer.text


@pytest.fixture(scope="module")
def shared_online(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    home = tmp_path_factory.mktemp("online")
    with running_daemon(home, env={"HEARTH_OFFLINE": "0"}) as daemon:
        yield daemon
