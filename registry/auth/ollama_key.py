"""The key with which Ollama's users sign token requests: ~/.ollama/id_ed25519.

Owns the reading of OpenSSH's private key format (PROTOCOL.key) and the form of the signature.
Sends nothing, writes no key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from pathlib import Path

from registry.auth.ed25519 import public_key, sign

_BEGIN = "-----BEGIN OPENSSH PRIVATE KEY-----"
_END = "-----END OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"
_KIND = b"ssh-ed25519"
_MAX_BYTES = 16384


@dataclass(frozen=True, slots=True)
class OllamaKey:
    """An ed25519 key. seed: the 32 secret bytes."""

    seed: bytes

    def __repr__(self) -> str:
        return "OllamaKey(...)"

    @classmethod
    def read(cls, path: Path) -> OllamaKey | None:
        """The key in a file; None when there is none, or one with a passphrase."""
        try:
            with path.open("r", encoding="ascii") as file:
                return cls(_seed(file.read(_MAX_BYTES)))
        except (OSError, ValueError):
            return None

    def authorization(self, method: str, url: str) -> str:
        """The Authorization header of a token request without a body."""
        empty = base64.b64encode(hashlib.sha256(b"").hexdigest().encode()).decode()
        signature = sign(self.seed, f"{method},{url},{empty}".encode())
        blob = _string(_KIND) + _string(public_key(self.seed))
        return f"{base64.b64encode(blob).decode()}:{base64.b64encode(signature).decode()}"


def _string(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def _seed(text: str) -> bytes:
    """The seed in a PEM text. Raises ValueError."""
    lines = text.strip().splitlines()
    if not lines or lines[0] != _BEGIN or lines[-1] != _END:
        raise ValueError("not a private key of OpenSSH")
    try:
        content = base64.b64decode("".join(lines[1:-1]), validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
    if not content.startswith(_MAGIC):
        raise ValueError("not a private key of OpenSSH")
    cipher, rest = _cut(content[len(_MAGIC) :])
    _, rest = _cut(rest)
    _, rest = _cut(rest)
    if cipher != b"none" or rest[:4] != b"\0\0\0\1":
        raise ValueError("the key has a passphrase")
    _, rest = _cut(rest[4:])
    private, _ = _cut(rest)
    if private[:4] != private[4:8]:
        raise ValueError("the key is damaged")
    kind, rest = _cut(private[8:])
    public, rest = _cut(rest)
    secret, _ = _cut(rest)
    if kind != _KIND or len(secret) != 64 or secret[32:] != public:
        raise ValueError("not an ed25519 key")
    return secret[:32]


def _cut(content: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(content[:4], "big")
    if len(content) < 4 + size:
        raise ValueError("the key is cut off")
    return content[4 : 4 + size], content[4 + size :]
