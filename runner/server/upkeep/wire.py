"""What clients send to the routes that maintain the store."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from runner.server.request_body import WireModel

_MAX_AGE_S = 10 * 365 * 86400.0


class FsckRequest(WireModel):
    """POST /api/fsck. quick: sizes only; repair: repair what can be repaired."""

    quick: bool = False
    repair: bool = False


class GcRequest(WireModel):
    """POST /api/gc. grace_s and partial_age_s: what is younger stays; None: the defaults."""

    dry_run: bool = False
    grace_s: float | None = Field(None, ge=0, le=_MAX_AGE_S)
    partial_age_s: float | None = Field(None, ge=0, le=_MAX_AGE_S)


class CacheClearRequest(WireModel):
    """POST /api/cache/clear. model: of this one only; None: of all."""

    model: str | None = Field(None, min_length=1, max_length=512)


class ImportRequest(WireModel):
    """POST /api/import. path: where the other program keeps its models, None: where it usually
    does. names: which ones; empty: all. copy: copy what cannot be linked. dry_run: list only."""

    source: Literal["ollama", "lmstudio", "hf"]
    path: str | None = Field(None, min_length=1, max_length=4096)
    names: list[str] = Field(default_factory=list, max_length=1000)
    copy_files: bool = Field(False, alias="copy")
    dry_run: bool = False
