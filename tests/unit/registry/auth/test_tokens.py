from __future__ import annotations

import base64
from collections.abc import Callable

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from registry.auth.credentials import Credential
from registry.auth.ollama_key import OllamaKey
from registry.auth.tokens import RegistryAuthority, _token_in
from registry.errors import RemoteRefused
from registry.hosts.http.client import ClientRequest, HttpClient
from tests.registry_server import FakeRegistry, Handler, fake_registry

KEY = OllamaKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))


def recorded(requests: list[tuple[str, str, str]]) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0))).decode()
        requests.append((handler.path, handler.headers.get("Authorization", ""), body))
        handler.reply(200, b'{"access_token":"token-canary"}')

    return answer


async def ask(remote: FakeRegistry, credential: Credential | None, key: OllamaKey | None) -> int:
    base = httpx.URL(remote.url)
    async with HttpClient("hearth/test") as web:
        tokens = RegistryAuthority(web, base, lambda _: credential, lambda _: key)
        response = await web.fetch(ClientRequest("GET", base.join("/v2/"), {}, None, tokens))
    return response.status_code


async def test_a_token_request_is_signed_with_the_key_of_ollama() -> None:
    requests: list[tuple[str, str, str]] = []
    with fake_registry() as remote:
        remote.auth = "token"
        remote.special["/token"] = recorded(requests)
        assert await ask(remote, None, KEY) == 200
        ((path, authorization, _),) = requests
    query = httpx.URL(path).params
    assert (query["service"], query["scope"]) == ("test", "repository:x:pull")
    assert query["ts"].isdigit()
    assert len(query["nonce"]) > 10
    expected = KEY.authorization("GET", f"{remote.url}{path}")
    assert authorization == expected
    assert len(base64.b64decode(authorization.partition(":")[2])) == 64


async def test_an_identity_token_is_exchanged_in_the_body_and_never_shown_in_a_url() -> None:
    requests: list[tuple[str, str, str]] = []
    with fake_registry() as remote:
        remote.auth = "token"
        remote.special["/token"] = recorded(requests)
        credential = Credential("<token>", "refresh-canary", identity=True)
        assert await ask(remote, credential, None) == 200
    ((path, _, body),) = requests
    assert "refresh-canary" not in path
    assert "grant_type=refresh_token" in body
    assert "refresh_token=refresh-canary" in body


async def test_without_credentials_a_token_is_asked_for_anonymously() -> None:
    requests: list[tuple[str, str, str]] = []
    with fake_registry() as remote:
        remote.auth = "token"
        remote.special["/token"] = recorded(requests)
        assert await ask(remote, None, None) == 200
    assert [authorization for _, authorization, _ in requests] == [""]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"token":5}', b'{"token":"a\\nb"}', b'{"token":"\xc3\xa4"}']
)
def test_what_is_no_token_is_refused(content: bytes) -> None:
    with pytest.raises(RemoteRefused, match="no token"):
        _token_in(content)
