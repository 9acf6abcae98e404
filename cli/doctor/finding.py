"""The result of a check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from runner.settings import Settings


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. mend: the command, or the change, that fixes it."""

    level: Literal["ok", "warning", "problem"]
    area: str
    text: str
    mend: str | None = None


Check = Callable[[Settings], Iterable[Finding]]


def ok(area: str, text: str) -> Finding:
    """Nothing is wrong with it."""
    return Finding("ok", area, text)


def warning(area: str, text: str, mend: str) -> Finding:
    """Slower, less or less safe than it could be."""
    return Finding("warning", area, text, mend)


def problem(area: str, text: str, mend: str) -> Finding:
    """Something does not work, or is open to others."""
    return Finding("problem", area, text, mend)
