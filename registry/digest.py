"""SHA-256 digests as a value type: the only way from text to a blob's file name."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from registry.errors import InvalidDigest

_FORM = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """A SHA-256 digest. hex: 64 lower-case hexadecimal digits."""

    hex: str

    @classmethod
    def parse(cls, text: str) -> Digest:
        """The digest in "sha256:<64 hex>". Raises InvalidDigest for anything else."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise InvalidDigest(text)
        return cls(found[1])

    @classmethod
    def of(cls, content: bytes) -> Digest:
        """The digest of content."""
        return cls(hashlib.sha256(content).hexdigest())

    @property
    def file_name(self) -> str:
        """The name of the blob's file, as Ollama writes it."""
        return f"sha256-{self.hex}"

    @property
    def short(self) -> str:
        """The first 12 digits, as listings show them."""
        return self.hex[:12]

    def __str__(self) -> str:
        return f"sha256:{self.hex}"
