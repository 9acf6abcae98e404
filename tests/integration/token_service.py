"""The token service of a registry: JSON web tokens that the openssl command signs.

Source: the distribution specification, "Docker Registry v2 authentication via central service" and
"Token Authentication Implementation".
"""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.integration.docker_registry import PASSWORD, USER

PATH = "/token"
READER = "ben"  # may pull everything and push nothing; everybody may pull what is public
_SERVICE, _ISSUER = "test registry", "test issuer"
_LIFE_S = 300
_NEW_KEY = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout key.pem -out cert.pem"

OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="the openssl command is not installed")


@dataclass(slots=True)
class TokenService:
    """A service with a key of its own in folder. asked: the scopes of each answered request, with
    who asked; None: nobody in particular. refused: how often it said no."""

    folder: Path
    asked: list[tuple[str | None, tuple[str, ...]]] = field(default_factory=list)
    refused: int = 0

    def __post_init__(self) -> None:
        _openssl(self.folder, *_NEW_KEY.split())

    def configuration(self, realm: str) -> str:
        """What the registry has to be told, realm being the service's URL."""
        return (
            f"auth: {{token: {{realm: '{realm}', service: {_SERVICE}, issuer: {_ISSUER}, "
            f"rootcertbundle: {self.folder}/cert.pem}}}}"
        )

    def answer(self, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """The status and the body for a GET of path."""
        query = parse_qs(urlsplit(path).query)
        given = headers.get("Authorization")
        users = {_basic(USER): USER, _basic(READER): READER, None: None}
        if given not in users or query.get("service") != [_SERVICE]:
            self.refused += 1
            return 401, b'{"details":"incorrect username or password"}'
        user, scopes = users[given], tuple(query.get("scope", ()))
        self.asked.append((user, scopes))
        return 200, json.dumps({"token": self._token(user, scopes)}).encode()

    def _token(self, user: str | None, scopes: tuple[str, ...]) -> str:
        now_s = int(time.time())
        claims = {
            "iss": _ISSUER,
            "sub": user or "",
            "aud": _SERVICE,
            "iat": now_s,
            "nbf": now_s - 5,
            "exp": now_s + _LIFE_S,
            "jti": str(len(self.asked)),
            "access": [_granted(user, scope) for scope in scopes],
        }
        certificate = ssl.PEM_cert_to_DER_cert((self.folder / "cert.pem").read_text())
        chain = [base64.b64encode(certificate).decode()]
        signed = f"{_part({'typ': 'JWT', 'alg': 'RS256', 'x5c': chain})}.{_part(claims)}"
        arguments = ("dgst", "-sha256", "-sign", "key.pem")
        signature = _openssl(self.folder, *arguments, content=signed.encode())
        return f"{signed}.{_base64url(signature)}"


def _granted(user: str | None, scope: str) -> dict[str, Any]:
    kind, name, actions = scope.split(":")
    allowed = {USER: {"pull", "push", "delete"}, READER: {"pull"}}
    public = {"pull"} if name.startswith("public/") else set()
    granted = set(actions.split(",")) & (allowed[user] if user is not None else public)
    return {"type": kind, "name": name, "actions": sorted(granted)}


def _basic(user: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{PASSWORD}'.encode()).decode()}"


def _part(value: Mapping[str, Any]) -> str:
    return _base64url(json.dumps(value, separators=(",", ":")).encode())


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _openssl(folder: Path, *arguments: str, content: bytes = b"") -> bytes:
    assert OPENSSL is not None
    ran = subprocess.run(
        [OPENSSL, *arguments], cwd=folder, input=content, capture_output=True, timeout=30
    )
    assert ran.returncode == 0, ran.stderr.decode(errors="replace")
    return ran.stdout
