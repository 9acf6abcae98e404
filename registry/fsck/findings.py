"""The result of a check: findings, and totals of what was checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from registry.digest import Digest
from registry.names import Name

FindingKind = Literal[
    "content", "size", "missing", "unreadable", "manifest", "link", "mode", "partial", "stray"
]
DAMAGE: tuple[FindingKind, ...] = ("content", "size", "missing", "unreadable", "manifest", "link")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be. path: relative to the store. models: the short
    names that cannot be trusted for it."""

    kind: FindingKind
    path: str
    message: str
    digest: Digest | None = None
    name: Name | None = None
    models: tuple[str, ...] = ()

    @property
    def is_damage(self) -> bool:
        """True when content is lost; False for what is merely out of place."""
        return self.kind in DAMAGE


@dataclass(frozen=True, slots=True)
class CheckTotals:
    """What a check has seen."""

    models: int
    blobs: int
    size_bytes: int
