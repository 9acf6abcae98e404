from __future__ import annotations

import email.utils
import time

import httpx
import pytest

from registry.errors import RemoteDenied, RemoteMissing, RemoteRefused, RemoteUnreachable
from registry.hosts.host import RangesIgnored, RetryLater
from registry.hosts.http.client import (
    ClientRequest,
    HttpClient,
    error_message,
    open_range,
    raise_for_status,
    raise_if_transient,
    retry_after_s,
)
from tests.registry_server import FakeRegistry


@pytest.mark.parametrize(
    ("text", "seconds"), [("7", 7.0), ("0", 0.0), ("99999", 300.0), ("", None), ("soon", None)]
)
def test_retry_after_is_read_and_bounded(text: str, seconds: float | None) -> None:
    assert retry_after_s({"retry-after": text}) == seconds


def test_retry_after_may_be_a_date() -> None:
    later = email.utils.formatdate(time.time() + 60, usegmt=True)
    found = retry_after_s({"retry-after": later})
    assert found is not None
    assert 55 < found <= 61
    past = email.utils.formatdate(time.time() - 60, usegmt=True)
    assert retry_after_s({"retry-after": past}) == 0.0


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (429, "reg.example:5000 limits the rate of requests (429); try again later"),
        (503, "reg.example:5000 responded with 503, an error of its own; try again later"),
    ],
)
def test_what_may_pass_is_said_in_words(status: int, words: str) -> None:
    request = httpx.Request("GET", "https://reg.example:5000/v2/")
    response = httpx.Response(status, headers={"retry-after": "7"}, request=request)
    with pytest.raises(RetryLater) as caught:
        raise_if_transient(response)
    assert (caught.value.reason, caught.value.after_s) == (words, 7.0)


def test_the_login_that_a_refusal_asks_for_names_the_port_of_the_registry() -> None:
    request = httpx.Request("GET", "http://127.0.0.1:5000/v2/")
    response = httpx.Response(401, content=b"", request=request)
    with pytest.raises(RemoteDenied, match=r"see: hearth login 127\.0\.0\.1:5000$"):
        raise_for_status(response, "model m")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, RemoteMissing), (401, RemoteDenied), (403, RemoteDenied), (418, RemoteUnreachable)],
)
def test_a_refusal_has_a_kind_and_the_words_of_the_registry(
    status: int, kind: type[Exception]
) -> None:
    body = b'{"errors":[{"code":"X","message":"no\\u001b[31m way"}]}'
    request = httpx.Request("GET", "https://reg.example/v2/")
    response = httpx.Response(status, content=body, request=request)
    with pytest.raises(kind, match=r"reg\.example"):
        raise_for_status(response, "model m")
    told = error_message(response)
    assert told is not None
    assert "\x1b" not in told


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"errors":[]}', b'{"errors":5}', b"\xff"])
def test_a_body_that_says_nothing_is_no_fault(body: bytes) -> None:
    request = httpx.Request("GET", "https://reg.example/v2/")
    assert error_message(httpx.Response(500, content=body, request=request)) is None


async def test_an_answer_is_asked_for_again_when_that_may_help(remote: FakeRegistry) -> None:
    url = httpx.URL(f"{remote.url}/v2/t/m/blobs/{remote.add_blob(b'abc')}")
    remote.faults.extend(["503", "429"])
    async with HttpClient("hearth/test") as web:
        response = await web.fetch(ClientRequest("GET", url))
    assert response.content == b"abc"
    assert len(remote.seen) == 3


async def test_nobody_there_is_said(remote: FakeRegistry) -> None:
    async with HttpClient("hearth/test") as web:
        with pytest.raises(RetryLater, match=r"127\.0\.0\.1"):
            async with web.open(ClientRequest("GET", httpx.URL("http://127.0.0.1:1/"))):
                pass


async def test_nobody_is_waited_for_who_was_not_there_from_the_beginning(
    remote: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("registry.hosts.http.client.asyncio.sleep", sleep)
    closed = ClientRequest("GET", httpx.URL("http://127.0.0.1:1/"))
    there = ClientRequest("GET", httpx.URL(f"{remote.url}/v2/"))
    async with HttpClient("hearth/test") as web:
        with pytest.raises(RemoteUnreachable, match="nothing listens there"):
            await web.fetch(closed)
        assert not waited
        await web.fetch(there)
        with pytest.raises(RemoteUnreachable, match="nothing listens there"):
            await web.fetch(closed)
    assert waited == [0.3, 0.6, 1.2]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("wrong range", RetryLater),
        ("503", RetryLater),
        ("whole", RangesIgnored),
        ("gzip", RemoteRefused),
    ],
)
async def test_a_range_is_what_was_asked_for_or_an_error(
    fault: str, kind: type[Exception], remote: FakeRegistry
) -> None:
    url = httpx.URL(f"{remote.url}/v2/t/m/blobs/{remote.add_blob(b'abcdef')}")
    remote.faults.append(fault)
    async with HttpClient("hearth/test") as web:
        with pytest.raises(kind):
            async with open_range(web, ClientRequest("GET", url), 2, 4):
                pass
        async with open_range(web, ClientRequest("GET", url), 2, 4) as parts:
            assert b"".join([part async for part in parts]) == b"cd"


async def test_every_request_says_who_asks_and_wants_no_compression(remote: FakeRegistry) -> None:
    async with HttpClient("hearth/9") as web:
        await web.fetch(ClientRequest("GET", httpx.URL(f"{remote.url}/v2/")))
    headers = {name.lower(): value for name, value in remote.seen[0].headers.items()}
    assert (headers["user-agent"], headers["accept-encoding"]) == ("hearth/9", "identity")
