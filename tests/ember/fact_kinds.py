"""The shapes of the entries in `facts`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """One `hearth` command."""

    name: str
    usage: str
    says: str
    asks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """One Modelfile instruction, PARAMETER or environment variable."""

    name: str
    says: str
    asks: tuple[str, ...]
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A fixed answer about hearth; `short` is what it must contain."""

    asks: tuple[str, ...]
    says: str
    short: str
