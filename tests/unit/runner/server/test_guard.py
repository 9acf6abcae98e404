from __future__ import annotations

import socket
from typing import Any

import pytest
import starlette.datastructures
from hypothesis import given
from hypothesis import strategies as st

from runner.authority import is_address
from runner.server.errors import HttpError
from runner.server.guard import Guard, check_body
from runner.setting_values import Address
from tests.properties import examples

Headers = list[tuple[bytes, bytes]]


class Handler:
    def __init__(self) -> None:
        self.runs = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.runs += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def ask(
    headers: Headers,
    method: str = "GET",
    path: str = "/api/tags",
    host: str = "127.0.0.1",
    **options: Any,
) -> tuple[int, int, dict[bytes, bytes]]:
    """Status, how often the handler ran, the answer's headers."""
    handler, sent = Handler(), []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": headers}
    if method == "WEBSOCKET":
        scope = {"type": "websocket", "path": path, "headers": headers}
    guard = Guard(handler, Address(host, 4327), **options)
    await guard(scope, None, send)  # type: ignore[arg-type]
    if sent[0]["type"] == "websocket.close":  # what servers answer with 403
        return 403, handler.runs, {}
    return sent[0]["status"], handler.runs, dict(sent[0]["headers"])


def checked(headers: Headers, path: str) -> int:
    """The status of a POST with these headers, by its body."""
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    try:
        check_body(scope, starlette.datastructures.Headers(scope=scope))
    except HttpError as error:
        return error.status if error.headers == {"connection": "close"} else 0
    return 200


def host(text: str) -> Headers:
    return [(b"host", text.encode())]


LOCAL_DOMAINS = (".localhost", ".local", ".internal")
OURS = host("127.0.0.1:4327")


@pytest.mark.parametrize("name", ["box.example:4327", "BOX.example:4327", "localhost:4327"])
async def test_the_configured_host_is_ours(name: str) -> None:
    assert (await ask(host(name), host="box.example"))[0] == 200


@pytest.mark.parametrize(
    "name",
    [
        *("192.168.1.5:4327", "[fe80::1]:4327", "127.0.0.2", "0.0.0.0", "[::2]", "203.0.113.9"),
        *("host.docker.internal", "gpu.lan.internal:80", "box.local", "app.localhost:4327"),
        *(socket.gethostname(), f"{socket.gethostname()}:4327".upper()),
    ],
)
async def test_addresses_and_names_of_the_local_network_are_ours(name: str) -> None:
    assert (await ask(host(name)))[0] == 200


@pytest.mark.parametrize(
    "name",
    [
        *("evil.com", "local", "internal", "evil.local.com", "localhost.com", "evilinternal"),
        *("a..local", ".local", "-.internal", "evil.com.", "box.local.", "127.0.0.1.nip.io"),
    ],
)
@pytest.mark.parametrize("public", [False, True])
async def test_no_name_that_a_public_server_can_answer_for_is_ours(name: str, public: bool) -> None:
    assert (await ask(host(name), public=public))[:2] == (403, 0)


@pytest.mark.parametrize(("name", "status"), [("hearth:4327", 200), ("HEARTH", 200), ("x", 403)])
async def test_the_names_of_the_settings_are_ours(name: str, status: int) -> None:
    assert (await ask(host(name), hosts=("hearth",), public=True))[0] == status


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "WEBSOCKET"])
@pytest.mark.parametrize("path", ["/", "/v1/models", "/nowhere", "/api/blobs/sha256:0"])
async def test_a_foreign_origin_reaches_no_handler(method: str, path: str) -> None:
    status, runs, headers = await ask([*OURS, (b"origin", b"https://evil.example")], method, path)
    assert (status, runs) == (200 if method == "OPTIONS" else 403, 0)
    assert not any(name.lower().startswith(b"access-control-") for name in headers)


@pytest.mark.parametrize(
    ("allowed", "origin", "status"),
    [
        ((), b"http://localhost:4327", 200),
        ((), b"http://localhost:3000", 200),
        ((), b"http://localhost", 200),
        ((), b"https://127.0.0.1:8443", 200),
        ((), b"http://0.0.0.0:5173", 200),
        ((), b"http://[::1]:5173", 200),
        ((), b"app://obsidian.md", 200),
        ((), b"file://", 200),
        ((), b"tauri://localhost", 200),
        ((), b"vscode-webview://1l5hk", 200),
        ((), b"vscode-file://vscode-app", 200),
        ((), b"null", 403),
        ((), b"chrome-extension://abc", 403),
        ((), b"http://127.0.0.2:3000", 403),
        ((), b"http://localhost.evil.example:3000", 403),
        ((), b"http://app.localhost.evil:3000", 403),
        ((), b"ftp://localhost", 403),
        ((), b"app://obsidian.md/evil", 403),
        ((), b"app://a@evil", 403),
        (("https://app.example",), b"https://app.example", 200),
        (("https://app.example/",), b"https://APP.example", 200),
        (("https://app.example",), b"https://app.example.evil", 403),
        (("chrome-extension://*",), b"chrome-extension://abc", 200),
        (("https://*.app.example",), b"https://a.app.example", 200),
        (("*",), b"https://anything.example", 200),
        (("*",), b"null", 403),
    ],
)
async def test_origins_are_of_this_machine_or_allowed(
    allowed: tuple[str, ...], origin: bytes, status: int
) -> None:
    got, _, headers = await ask([*OURS, (b"origin", origin)], origins=allowed)
    assert got == status
    assert headers.get(b"access-control-allow-origin") == (origin if status == 200 else None)


@pytest.mark.parametrize(
    ("name", "origin", "status"),
    [
        ("192.168.1.5:4327", "http://192.168.1.5:4327", 200),
        ("192.168.1.5:4327", "http://192.168.1.6:4327", 403),
        ("127.0.0.1:4327", "http://203.0.113.9:4327", 403),
        ("llm.example", "https://llm.example", 200),
        ("llm.example", "https://llm.example:444", 403),
        ("127.0.0.1:4327", "https://llm.example", 403),
        # Names that whoever runs the network can point at his server first, and then at this one.
        ("router.local:4327", "http://router.local:4327", 403),
        ("host.docker.internal:4327", "http://host.docker.internal:4327", 403),
        (f"{socket.gethostname()}:4327", f"http://{socket.gethostname()}:4327", 403),
    ],
)
async def test_a_page_of_the_daemons_own_is_of_the_host_that_it_asks(
    name: str, origin: str, status: int
) -> None:
    headers = [*host(name), (b"origin", origin.encode())]
    assert (await ask(headers, "POST", hosts=("llm.example",)))[0] == status


async def test_pages_under_this_machines_name_are_the_daemons_where_others_reach_it() -> None:
    for name in (socket.gethostname(), f"{socket.gethostname()}.local"):
        headers = [*host(f"{name}:4327"), (b"origin", f"http://{name}:4327".encode())]
        assert (await ask(headers, public=True))[0] == 200


@pytest.mark.parametrize("kind", [b"text/plain;charset=UTF-8", b"application/json", None])
@pytest.mark.parametrize(
    ("source", "statuses"),
    [
        ((b"origin", b"http://localhost:3000"), (200, 200, 200)),
        ((b"sec-fetch-site", b"same-origin"), (415, 200, 415)),
        ((b"sec-fetch-mode", b"cors"), (200, 200, 200)),  # node's fetch
    ],
)
async def test_a_body_may_be_of_any_type_where_its_page_is_known(
    kind: bytes | None, source: tuple[bytes, bytes], statuses: tuple[int, int, int]
) -> None:
    typed = [] if kind is None else [(b"content-type", kind)]
    headers = [*OURS, source, *typed, (b"content-length", b"2")]
    expected = statuses[[b"text/plain;charset=UTF-8", b"application/json", None].index(kind)]
    assert (await ask(headers, "POST"))[0] == 200
    assert checked(headers, "/api/tags") == expected


async def test_a_preflight_of_an_allowed_origin_is_answered_here() -> None:
    status, runs, headers = await ask([*OURS, (b"origin", b"http://localhost:4327")], "OPTIONS")
    assert (status, runs) == (200, 0)
    assert headers[b"Access-Control-Allow-Origin"] == b"http://localhost:4327"
    assert headers[b"Access-Control-Allow-Methods"] == b"GET, POST, DELETE, OPTIONS"
    assert headers[b"Access-Control-Allow-Headers"] == b"authorization, *"


@pytest.mark.parametrize("name", ["localhost:1", "127.0.0.1", "[::1]:8080", "LOCALHOST"])
async def test_the_port_of_the_host_may_be_a_tunnels(name: str) -> None:
    assert (await ask(host(name)))[0] == 200


@pytest.mark.parametrize("count", [0, 2])
async def test_there_must_be_exactly_one_host(count: int) -> None:
    assert (await ask(OURS * count))[0] == 400


def test_a_blob_may_be_longer_than_a_body_and_of_any_type() -> None:
    headers = [*OURS, (b"content-length", b"99999999999")]
    assert checked(headers, "/api/blobs/sha256:0") == 200
    assert checked(headers, "/api/chat") == 413


@examples(60)
@given(name=st.text(max_size=30), port=st.sampled_from(["", ":4327", ":80"]))
async def test_no_other_host_name_passes(name: str, port: str) -> None:
    given_host = (name + port).encode("latin-1", "replace").decode("latin-1")
    headers = [(b"host", given_host.encode("latin-1"))]
    status, runs, _ = await ask(headers)
    bare = given_host.removesuffix(port)
    if bare not in ("localhost", socket.gethostname()) and not bare.endswith(LOCAL_DOMAINS):
        assert (status == 200) == is_address(bare.removeprefix("[").removesuffix("]"))
    assert runs == (status == 200)


NO_HOSTS = [
    *("", " ", "localhost:", "localhost:x", "localhost:0", "localhost:65536", "localhost:-1"),
    *("localhost:+80", "localhost:80:80", "localhost:80:evil", "localhost:80x", "localhost:8 0"),
    *("localhost#", "localhost/", "localhost?", "localhost\\", "localhost;", "localhost,evil"),
    *("user@localhost", "evil@localhost:4327", "localhost@evil", "user:pw@localhost"),
    *("localhost.", ".localhost", "localhost..", "local%68ost", "localhost%00", "localhost\x00"),
    *("localhost evil", "localhost\t", " localhost", "localhost\xa0", "ｌocalhost"),
    *("http://localhost", "//localhost", "localhost.evil", "evil..localhost", "notlocalhost"),
    *("127.0.0.1:80:evil", "127.0.0.1.", "127.1", "127.0.0.01", "0x7f.0.0.1", "2130706433"),
    *("127.0.0.256", "127.0.0.1.evil", "127.0.0.1%0", "[127.0.0.1]", "0.0", "１27.0.0.1"),
    *("[::1]x", "[::1]evil", "[::1]:", "[::1]:80x", "[::1]:80:evil", "[::1", "::1]", "::1"),
    *("[::1]]", "[[::1]]", "x[::1]", "[::1]@evil", "[::1%lo]", "[::1%25lo]", "[::1%eth0]:4327"),
    *("[localhost]", "[]", "[::1]#", "[::1]/", "[:::1]", "[::ffff:1.2.3.4.]", "[::1].", "[v1.::1]"),
]  # fmt: skip


@pytest.mark.parametrize("name", NO_HOSTS)
async def test_a_host_is_taken_as_it_is_listed_and_in_no_other_form(name: str) -> None:
    text = name.encode("utf-8")
    assert (await ask([(b"host", text)]))[:2] == (403, 0)
    origin = [*OURS, (b"origin", b"http://" + text), (b"sec-fetch-site", b"same-origin")]
    assert (await ask(origin))[:2] == (403, 0)


@pytest.mark.parametrize(
    "name", ["[fe80::1%eth0]:4327", "[fe80::1%25eth0]", "1.2.3.4.", "[1.2.3.4]", "1.2.3", "::2"]
)
async def test_a_public_daemon_takes_addresses_as_they_are_written_only(name: str) -> None:
    assert (await ask(host(name), host="0.0.0.0", public=True))[0] == 403


@pytest.mark.parametrize(
    "origin",
    [
        *("http://localhost:4327/", "http://localhost:4327#", "http://localhost:4327:80", "http:"),
        *("http://localhost:4327@evil", "http://evil@localhost:4327", "http:localhost:4327"),
        *("ftp://localhost:4327", "http:///localhost:4327", "http://localhost:", "localhost:4327"),
        *("http://[::1]x:4327", "http://[::1]4327", "http://localhost.:4327", "null", ""),
    ],
)  # fmt: skip
async def test_an_origin_is_taken_as_it_is_listed_and_in_no_other_form(origin: str) -> None:
    assert (await ask([*OURS, (b"origin", origin.encode())]))[:2] == (403, 0)


@pytest.mark.parametrize("origin", ["http://[::1]:4327", "HTTPS://LocalHost:4327"])
async def test_an_origin_of_ours_may_be_written_in_capitals(origin: str) -> None:
    assert (await ask([*OURS, (b"origin", origin.encode())]))[0] == 200
