"""Names and passwords for registries: hearth's own file, then the configuration of docker.

Owns the reading and writing of both and the asking of docker's credential helpers. Sends nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.atomic import read_small, write_private
from registry.errors import StoreFault

_MAX_BYTES = 1024 * 1024
_HELPER_TIMEOUT_S = 10.0
_HELPER = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


@dataclass(frozen=True, slots=True)
class Credential:
    """A user name and a password or token. identity: the password is an identity token, which
    is changed for an access token."""

    username: str
    password: str
    identity: bool = False

    def __repr__(self) -> str:
        return f"Credential({self.username!r}, ...)"


class Credentials:
    """The credentials of this user. own: hearth's file; docker: that of docker, None: none."""

    def __init__(self, own: Path, docker: Path | None) -> None:
        self._own = own
        self._docker = docker

    def find(self, host: str) -> Credential | None:
        """What to show to a registry, host being its name with the port. Blocks on the disk
        and on credential helpers."""
        for path in (self._own, self._docker):
            config = {} if path is None else _read(path)
            for key in _keys(host):
                found = _stored(config, key) or _helped(config, key)
                if found is not None:
                    return found
        return None

    def save(self, host: str, credential: Credential) -> None:
        """Keep a credential in hearth's own file, readable for this user only.

        Raises StoreFault.
        """
        config = _read(self._own)
        auths = {**_object(config.get("auths")), host: {"auth": _pair(credential)}}
        self._write({**config, "auths": auths})

    def remove(self, host: str) -> bool:
        """Forget what save kept; False when there was nothing. Raises StoreFault."""
        config = _read(self._own)
        auths = _object(config.get("auths"))
        if auths.pop(host, None) is None:
            return False
        self._write({**config, "auths": auths})
        return True

    def _write(self, config: dict[str, Any]) -> None:
        try:
            write_private(self._own, json.dumps(config, indent=2).encode())
        except OSError as error:
            raise StoreFault("write the credentials", error.errno) from error


def docker_config() -> Path:
    """Where docker and its relatives keep their configuration."""
    folder = os.environ.get("DOCKER_CONFIG")
    return Path(folder) / "config.json" if folder else Path.home() / ".docker" / "config.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_small(path, _MAX_BYTES)
        return _object(json.loads(content)) if len(content) <= _MAX_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return {}


def _object(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _keys(host: str) -> tuple[str, ...]:
    """The keys under which the configuration of docker may have a host."""
    if host in _DOCKER_HUB:
        return ("https://index.docker.io/v1/", *_DOCKER_HUB)
    return (host, f"https://{host}", f"https://{host}/v1/", f"https://{host}/v2/")


def _pair(credential: Credential) -> str:
    return base64.b64encode(f"{credential.username}:{credential.password}".encode()).decode()


def _stored(config: dict[str, Any], key: str) -> Credential | None:
    entry = _object(_object(config.get("auths")).get(key))
    token = entry.get("identitytoken")
    if isinstance(token, str) and token:
        return Credential("<token>", token, identity=True)
    try:
        text = base64.b64decode(str(entry.get("auth", "")), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    username, colon, password = text.partition(":")
    return Credential(username, password.rstrip("\0")) if colon and username else None


def _helped(config: dict[str, Any], key: str) -> Credential | None:
    helper = _object(config.get("credHelpers")).get(key)
    if helper is None and key in _object(config.get("auths")):
        helper = config.get("credsStore")
    if not isinstance(helper, str) or _HELPER.fullmatch(helper) is None:
        return None
    try:
        ran = subprocess.run(
            [f"docker-credential-{helper}", "get"],
            input=key.encode(),
            capture_output=True,
            timeout=_HELPER_TIMEOUT_S,
            check=True,
        )
        answer = _object(json.loads(ran.stdout[:_MAX_BYTES]))
    except (OSError, ValueError, RecursionError, subprocess.SubprocessError):
        return None
    username, secret = answer.get("Username"), answer.get("Secret")
    if not isinstance(username, str) or not isinstance(secret, str) or not secret:
        return None
    return Credential(username, secret, identity=username == "<token>")
