"""The API keys of a daemon: who may do what, kept in one file as hashes.

A key is 256 random bits, so its SHA-256 cannot be guessed back and needs no salt. Owns the file;
knows nothing of requests.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import re
import secrets
import threading
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from runner.errors import Conflict, InvalidRequest, KeyNotFound, StorageFailed
from runner.library.files import read_small, write_private

Scope = Literal["inference", "metrics", "pull", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

FILE_NAME = "keys.json"
PREFIX = "hearth_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is kept. sha256: of its text, in hexadecimal digits."""

    name: str
    scopes: tuple[str, ...]
    sha256: str
    created_at: str

    @property
    def id(self) -> str:
        """What tells it from every other key, also from a later one of the same name."""
        return f"key {self.sha256[:32]}"

    def may(self, scope: Scope) -> bool:
        """Whether it opens what needs scope; admin opens everything."""
        return scope in self.scopes or "admin" in self.scopes


_FIELDS = {field.name for field in fields(ApiKey)}


class KeyRing:
    """All keys. Without any, callers that the daemon serves by default need none."""

    def __init__(self, path: Path) -> None:
        """Raises StorageFailed for a file that cannot be read: no keys would open everything."""
        self._path = path
        self._lock = threading.Lock()
        self._keys = {key.name: key for key in _read(path)}

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def keys(self) -> list[ApiKey]:
        """Every key, oldest first."""
        return sorted(self._keys.values(), key=lambda key: key.created_at)

    def find(self, text: str) -> ApiKey | None:
        """The key that text is. Takes the same time whichever it is."""
        given, found = _hash(text), None
        for key in self._keys.values():
            if hmac.compare_digest(key.sha256, given):
                found = key
        return found

    def add(self, name: str, scopes: tuple[Scope, ...]) -> str:
        """Create a key and return its text, which cannot be read back later. Raises InvalidRequest,
        Conflict, StorageFailed."""
        if _NAME.fullmatch(name) is None:
            raise InvalidRequest(
                f"{name[:64]!r} is not a valid key name: use at most 64 letters, digits, '.', "
                "'_' and '-'",
                param="name",
            )
        text = PREFIX + secrets.token_urlsafe(32)
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        with self._lock:
            if name in self._keys:
                raise Conflict(
                    f"a key named {name!r} already exists; remove it first: hearth key rm {name}"
                )
            self._store({**self._keys, name: ApiKey(name, scopes, _hash(text), now)})
        return text

    def remove(self, name: str, *, keep_one: bool) -> None:
        """Take a key away; what it opened is closed at once. keep_one: but not the last one.
        Raises KeyNotFound, Conflict, StorageFailed."""
        with self._lock:
            if name not in self._keys:
                known = ", ".join(sorted(self._keys)) or "none"
                raise KeyNotFound(f"there is no key {name[:64]!r}; there are: {known}")
            if keep_one and len(self._keys) == 1:
                raise Conflict(
                    f"{name!r} is the last key; without it the daemon would be open to other "
                    "machines. Create another key first: hearth key add NAME. Or stop the daemon, "
                    "set HEARTH_HOST=127.0.0.1, and remove the key then"
                )
            self._store({other: key for other, key in self._keys.items() if other != name})

    def _store(self, keys: dict[str, ApiKey]) -> None:
        content = json.dumps([asdict(key) for key in keys.values()], indent=1) + "\n"
        try:
            write_private(self._path, content.encode())
        except OSError as error:
            raise StorageFailed(
                f"the key file cannot be written: {error.strerror}",
                errno=errno.errorcode.get(error.errno or 0),
            ) from None
        self._keys = keys


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _read(path: Path) -> list[ApiKey]:
    try:
        content = read_small(path, _MAX_BYTES)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageFailed(f"{path} cannot be read: {error.strerror}") from None
    try:
        keys = [_key(item) for item in _items(json.loads(content))]
        if len({key.name for key in keys}) < len(keys):
            raise ValueError("two keys with one name")
    except (ValueError, TypeError, RecursionError):
        raise StorageFailed(
            f"{path} is not a valid key file; repair it, or remove it and create the keys again"
        ) from None
    return keys


def _items(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _key(item: object) -> ApiKey:
    """A key as _store writes it, and nothing else: what is not understood might close less than
    was meant. Raises TypeError, ValueError."""
    if not isinstance(item, dict) or item.keys() != _FIELDS or not isinstance(item["scopes"], list):
        raise TypeError("not a key")
    key = ApiKey(**{**item, "scopes": tuple(item["scopes"])})
    texts = (key.name, key.sha256, key.created_at)
    if not all(isinstance(text, str) for text in texts) or not key.scopes:
        raise TypeError("fields of other types")
    if not (_NAME.fullmatch(key.name) and _SHA256.fullmatch(key.sha256)):
        raise ValueError("no name, or no hash")
    if not all(scope in SCOPES for scope in key.scopes):
        raise ValueError("an unknown scope")
    return key
