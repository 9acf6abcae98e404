"""Ages of files that do not depend on changes of the machine's date.

Files that are removed by age must not be removed because the date was changed; a clock without a
battery jumps by years.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from pathlib import Path

from registry.atomic import read_regular, write_unsynced
from registry.errors import BlobDamaged

MAX_GAP_S = 7 * 86400.0
_SLACK_S = 60.0  # by which a clock may be set back
_MAX_BYTES = 1024


if sys.platform == "linux":

    def uptime_s() -> float:
        """Seconds since the machine was started, including sleep; nobody can change it."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)
else:

    def uptime_s() -> float:
        """Seconds since some time before this process; nobody can change them."""
        return time.monotonic()


_STARTED_S = time.time() - uptime_s()


def steady_now() -> float:
    """Seconds since 1970 by the date as it was when this process began: a date that is set
    meanwhile makes nothing older."""
    return _STARTED_S + uptime_s()


class FileAges:
    """The age of a store's files, by their times. The date may have been changed between two
    processes: if more than MAX_GAP_S or a negative time has passed, no file counts as older than
    the process that noticed it, because the date of writing cannot be trusted."""

    __slots__ = ("_path", "_since_s")

    def __init__(self, path: Path) -> None:
        """path: where the date is kept."""
        self._path = path
        self._since_s = -math.inf  # before which no file counts as written

    def begin(self) -> None:
        """A process begins that removes files."""
        with contextlib.suppress(
            OSError, BlobDamaged, ValueError, TypeError, KeyError, RecursionError
        ):
            kept = json.loads(read_regular(self._path, _MAX_BYTES))
            since_s, gap_s = kept["since_s"], steady_now() - float(kept["seen_s"])
            if since_s is not None:
                self._since_s = float(since_s)
            if not -_SLACK_S <= gap_s <= MAX_GAP_S:
                self._since_s = steady_now()
        self.note()

    def note(self) -> None:
        """Keep the date. What is not kept makes files no older than they are."""
        since_s = None if self._since_s == -math.inf else self._since_s
        content = json.dumps({"since_s": since_s, "seen_s": steady_now()}).encode()
        with contextlib.suppress(OSError):
            write_unsynced(self._path, content)

    def age_s(self, modified_s: float) -> float:
        """Seconds since a file with this time was written, or less."""
        return steady_now() - max(modified_s, self._since_s)
