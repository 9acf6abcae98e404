"""Which models have ended their worker by a fault of its own, again and again: kept over restarts
of the daemon, so that a file that llama.cpp cannot stand is not tried for ever.

Owns the file that says so. A worker that somebody kills is no fault of its model. Times are seconds
of the wall clock.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from registry.atomic import read_regular, write_private
from registry.errors import RegistryError

log = logging.getLogger("hearth.models")

MARKED_AFTER: Final = 2  # crashes without an end in peace between them
RETRY_AFTER_S: Final = 600.0  # of a model that does not survive loading
_FAULTS: Final = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGSYS"})
_MAX_FILE_BYTES: Final = 1 << 20
_MAX_MODELS: Final = 1000


@dataclass(frozen=True, slots=True)
class CrashMark:
    """crashes: one after the other; signal: of the last one; loading: the model was not loaded yet;
    at_s: when."""

    crashes: int
    signal: str
    loading: bool
    at_s: float

    def __str__(self) -> str:
        times = "twice" if self.crashes == MARKED_AFTER else f"{self.crashes} times"
        when = "while loading" if self.loading else "while answering"
        return f"crashed its worker {times} ({self.signal} {when})"


class CrashMarks:
    """By the digests of models' manifests. path None: nothing is kept."""

    def __init__(self, path: Path | None = None, now: Callable[[], float] = time.time) -> None:
        self._path, self._now = path, now
        self._marks: dict[str, CrashMark] = {} if path is None else _read(path)

    def record(self, digest: str, signal: str | None, *, loading: bool) -> None:
        """The model's worker was ended by a signal; None: it ended by itself."""
        if signal not in _FAULTS:
            return
        before = self._marks.get(digest)
        crashes = 1 if before is None else before.crashes + 1
        self._marks[digest] = CrashMark(crashes, str(signal), loading, self._now())
        self._write()

    def clear(self, digest: str) -> None:
        """The model's worker ended in peace."""
        if self._marks.pop(digest, None) is not None:
            self._write()

    def find(self, digest: str) -> CrashMark | None:
        """What is to be said of a model; None: nothing."""
        mark = self._marks.get(digest)
        return mark if mark is not None and mark.crashes >= MARKED_AFTER else None

    def blocked_s(self, digest: str) -> float | None:
        """Seconds until a start is allowed again; None when it is allowed now."""
        mark = self.find(digest)
        if mark is None or not mark.loading:
            return None
        left_s = min(mark.at_s + RETRY_AFTER_S - self._now(), RETRY_AFTER_S)  # the clock may jump
        return left_s if left_s > 0 else None

    def _write(self) -> None:
        while len(self._marks) > _MAX_MODELS:
            del self._marks[next(iter(self._marks))]
        if self._path is None:
            return
        content = {digest: asdict(mark) for digest, mark in self._marks.items()}
        try:
            write_private(self._path, json.dumps(content).encode())
        except (RegistryError, OSError) as error:
            log.warning("cannot keep which models crashed: %s", error)


def _read(path: Path) -> dict[str, CrashMark]:
    """What was kept; nothing where the file is damaged: it only saves attempts."""
    try:
        found = json.loads(read_regular(path, _MAX_FILE_BYTES))
        return {str(digest): _mark(value) for digest, value in found.items()}
    except FileNotFoundError:
        return {}
    except (RegistryError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        log.warning("cannot read which models crashed: %s", error)
        return {}


def _mark(value: Any) -> CrashMark:
    crashes, at_s = int(value["crashes"]), float(value["at_s"])
    return CrashMark(crashes, str(value["signal"])[:16], bool(value["loading"]), at_s)
