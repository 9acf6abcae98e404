"""The key with which Ollama's users sign token requests: ~/.ollama/id_ed25519.

Owns the form of the signature. Sends nothing, writes no key.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_MAX_BYTES = 16384


@dataclass(frozen=True, slots=True)
class OllamaKey:
    """An ed25519 key."""

    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> OllamaKey | None:
        """The key in a file of OpenSSH; None when there is none, or one with a passphrase."""
        # A tenth of a second that only pulls from Ollama's registry need.
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key

        try:
            with path.open("rb") as file:
                private = load_ssh_private_key(file.read(_MAX_BYTES), password=None)
        except (OSError, TypeError, ValueError, UnsupportedAlgorithm):
            return None
        return cls(private) if isinstance(private, Ed25519PrivateKey) else None

    def authorization(self, method: str, url: str) -> str:
        """The Authorization header of a token request without a body."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        empty = base64.b64encode(hashlib.sha256(b"").hexdigest().encode()).decode()
        signature = self.private.sign(f"{method},{url},{empty}".encode())
        public = self.private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        return f"{public.split()[1].decode()}:{base64.b64encode(signature).decode()}"
