"""What is said of connections that fail, for the faults that real sockets give and others."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from registry.errors import RemoteUnreachable
from registry.hosts.host import RetryLater
from registry.hosts.http.client import ClientRequest, HttpClient
from registry.hosts.http.faults import connection_fault
from registry.hosts.references import parse
from registry.hosts.web_files import UrlHost


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


async def test_a_server_that_never_answers_is_given_up(silent: str) -> None:
    async with HttpClient("hearth/1", stall_s=0.2) as client:
        request = ClientRequest("GET", httpx.URL(f"http://{silent}/v2/"))
        with pytest.raises(RemoteUnreachable, match=f"^{silent} stopped responding$"):
            await client.fetch(request)
        with pytest.raises(RemoteUnreachable, match=f"^{silent} stopped responding$"):
            await UrlHost(client, parse(f"http://{silent}/x.gguf")).resolve()


def caused(error: Exception, *causes: BaseException) -> Exception:
    """error with a chain of causes, as libraries leave it."""
    for outer, inner in zip((error, *causes), causes, strict=False):
        outer.__cause__ = inner
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx.ConnectTimeout("", request=None), "cannot reach h:1: no answer; the network seems"),
        (
            caused(httpx.ConnectError("x"), OSError("all"), OSError(errno.EHOSTUNREACH, "x")),
            "cannot reach h:1: there is no route to it; the network seems to be down",
        ),
        (
            caused(
                httpx.ConnectError("x"),
                OSError("all"),
                ExceptionGroup("", [OSError(errno.ENETUNREACH, "x"), OSError(errno.EIO, "y")]),
            ),
            "cannot reach h:1: there is no route to it; the network seems to be down",
        ),
        (
            caused(httpx.ConnectError("x"), OSError(errno.EMFILE, "x")),
            "cannot reach h:1: Too many open files",
        ),
        (httpx.RemoteProtocolError("cut\x1b"), "the connection to h:1 broke: cut\\x1b"),
    ],
)  # fmt: skip
def test_each_fault_has_words_of_its_own(error: Any, words: str) -> None:
    fault = connection_fault(error, "h:1")
    assert isinstance(fault, RetryLater)
    assert fault.reason.startswith(words)
