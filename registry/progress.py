"""How far a long task is, as one value for everybody who watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of a task. completed of total: in bytes, or in unit; None where nothing is counted.
    digest: of the blob that is transferred; resumed: the bytes that an earlier transfer left.
    model: at the end, the name of what came. state: given back, it lets the task go on from
    here."""

    status: str
    completed: int | None = None
    total: int | None = None
    unit: str | None = None
    digest: str | None = None
    resumed: int | None = None
    model: str | None = None
    state: Mapping[str, Any] | None = None
