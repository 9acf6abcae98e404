"""Where servers may be that requests name."""

from __future__ import annotations

from collections.abc import Sequence

import httpx2
import pytest

from runner.errors import InvalidRequest
from runner.mcp.address import check_url
from runner.mcp.public_network import guard


@pytest.mark.parametrize(
    ("url", "named", "public"),
    [
        ("https://93.184.216.34/mcp", (), True),
        ("http://127.0.0.1:8000/mcp", None, False),
        ("http://127.0.0.1:8000/mcp", ("127.0.0.1:8000",), False),
        ("https://[fd00::1]/mcp", ("[fd00::1]",), False),
    ],
)
async def test_where_a_server_may_be(url: str, named: Sequence[str] | None, public: bool) -> None:
    assert await check_url(url, named) is public


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:8000/", "127.0.0.1 is not at a public address"),
        ("https://169.254.169.254/", "HEARTH_PRIVATE_REGISTRIES names 169.254.169.254:443"),
        ("https://[::ffff:10.0.0.1]/", "is not at a public address"),
        ("https://2130706433/", "is not at a public address"),
        ("https://0x7f.1/", "is not at a public address"),
        ("https://127.1/", "is not at a public address"),
        ("http://localhost/", "is not at a public address"),
        ("http://93.184.216.34/", "use https"),
        ("https://user:password@93.184.216.34/", "a user name or a password"),
        ("https:///mcp", "no host"),
        ("https://93.184.216.34/#x", "a fragment"),
        ("https://93.184.216.34:99999/", "a port that cannot be"),
        ("ftp://93.184.216.34/", "neither https nor http"),
        ("https://93.184.216.34/\r\nX: y", "characters that no URL has"),
    ],
)
async def test_where_none_may_be(url: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason.replace("[", r"\[")) as refused:
        await check_url(url, ("127.0.0.1:9000",))
    assert "password@" not in refused.value.message


async def test_a_public_name_that_leads_home_is_not_connected_to() -> None:
    network = httpx2.AsyncHTTPTransport()
    guard(network)
    async with httpx2.AsyncClient(transport=network) as client:
        with pytest.raises(httpx2.ConnectError, match="localhost is not at a public address"):
            await client.get("http://localhost:9/")
