"""The crashes of workers: when one may be started again, and which models crash theirs again and
again, kept over restarts of the daemon, so that a file that llama.cpp cannot stand is not tried for
ever.

Owns the file that says so. A worker that somebody kills is no fault of its model, but is not
started without end either.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from registry.atomic import read_regular, write_private
from registry.errors import RegistryError
from runner.errors import WorkerCrashed
from runner.models.lease import AskedModel
from runner.models.resident import Load

log = logging.getLogger("hearth.models")

WINDOW_S: Final = 60.0
MAX_CRASHES: Final = 3  # of a load within the window; then no start until the first is out of it
_BACKOFF_S: Final = (0.0, 0.0, 1.0)  # by the number of crashes in the window
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


class Crashes:
    """Of one daemon. path None: nothing is kept. now: seconds of the wall clock; now_s are those of
    a clock that nobody sets."""

    def __init__(self, path: Path | None = None, now: Callable[[], float] = time.time) -> None:
        self._path, self._now = path, now
        self._marks: dict[str, CrashMark] = {} if path is None else _read(path)
        self._times_s: dict[Hashable, deque[float]] = {}  # by load, of the last crashes

    def record(self, load: Load, signal: str | None, now_s: float, *, loading: bool) -> None:
        """The worker of load was ended by a signal; None: it ended by itself."""
        self._times_s.setdefault(load.key, deque(maxlen=MAX_CRASHES)).append(now_s)
        if signal not in _FAULTS:
            return
        for resident in load.residents:
            before = self._marks.get(resident.key)
            crashes = 1 if before is None else before.crashes + 1
            self._marks[resident.key] = CrashMark(crashes, str(signal), loading, self._now())
        self._write()

    def clear(self, load: Load) -> None:
        """The worker of load ended in peace."""
        if [each for each in load.residents if self._marks.pop(each.key, None) is not None]:
            self._write()

    def backoff_s(self, asked: AskedModel, now_s: float) -> float:
        """How long to wait before the model's worker is started. Raises WorkerCrashed where it is
        not to be started yet."""
        name, blocked_s = asked.bundle.name.short, self.blocked_s(asked.digest)
        if blocked_s is not None:
            raise WorkerCrashed(
                f"{name} {self.find(asked.digest)}; its file is probably damaged. It is tried"
                f" again in {math.ceil(blocked_s / 60)} minutes at the earliest; create or pull it"
                f" again, or remove it: hearth rm {name}",
                retry_after_s=math.ceil(blocked_s),
            )
        recent_s = [at_s for at_s in self._times_s.get(asked.key, ()) if now_s - at_s < WINDOW_S]
        if len(recent_s) == MAX_CRASHES:
            blocked_s = math.ceil(recent_s[0] + WINDOW_S - now_s)
            raise WorkerCrashed(
                f"the worker of {name} has crashed {MAX_CRASHES} times within a minute; it is not"
                f" started again for {blocked_s} s",
                retry_after_s=blocked_s,
            )
        return _BACKOFF_S[len(recent_s)]

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
    except (RegistryError, OSError, ValueError, TypeError, AttributeError, KeyError,
            RecursionError) as error:  # fmt: skip
        log.warning("cannot read which models crashed: %s", error)
        return {}


def _mark(value: Any) -> CrashMark:
    crashes, at_s = int(value["crashes"]), float(value["at_s"])
    return CrashMark(crashes, str(value["signal"])[:16], bool(value["loading"]), at_s)
