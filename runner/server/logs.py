"""The daemon's log: one line for each record on stderr. Never prompts, answers or keys."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

_FIELD_LIMIT = 4096
REPEAT_S = 60.0
MAX_REPEATED = 256  # different messages that are remembered
KEPT_ENTRIES = 1000
KEPT_WARNINGS = 200


class LineFormatter(logging.Formatter):
    """Time, level, logger, message. Control characters from names or paths are escaped, so that
    nothing a client sends can forge a line; only tracebacks have several lines."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without its traceback."""
        text = super().formatMessage(record)[:_FIELD_LIMIT]
        return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


class OncePerInterval(logging.StreamHandler[TextIO]):
    """Writes a warning or an error that says the same as one before once in REPEAT_S, with how
    often it came: what a client can cause a thousand times a second fills no disk."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._written: OrderedDict[tuple[str, int, str], _Repeated] = OrderedDict()

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        now_s = self._clock()
        self._tell_repeated(now_s)
        if record.levelno >= logging.WARNING:
            key = (record.name, record.levelno, record.getMessage())
            known = self._written.get(key)
            if known is not None:
                known.left_out += 1
                return
            self._written[key] = _Repeated(now_s + REPEAT_S)
            if len(self._written) > MAX_REPEATED:
                self._written.popitem(last=False)
        super().emit(record)

    def _tell_repeated(self, now_s: float) -> None:
        """How often those came whose interval is over."""
        while self._written and next(iter(self._written.values())).until_s <= now_s:
            (name, level, message), known = self._written.popitem(last=False)
            if known.left_out:
                first = message.partition("\n")[0]
                text = f"{first} ({known.left_out} times more in {REPEAT_S:g} s)"
                super().emit(logging.LogRecord(name, level, "", 0, text, (), None))


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A record as it is kept. number: counts up, from 1."""

    number: int
    created_at: float
    level: int
    logger: str
    message: str


class RecentLog(logging.Handler):
    """Keeps the newest records, and the newest warnings and errors however much came after them."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._all: deque[LogEntry] = deque(maxlen=KEPT_ENTRIES)
        self._warnings: deque[LogEntry] = deque(maxlen=KEPT_WARNINGS)

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        self._count += 1
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            message += f" ({type(record.exc_info[1]).__name__}; the log has its traceback)"
        entry = LogEntry(
            self._count, record.created, record.levelno, record.name, message[:_FIELD_LIMIT]
        )
        self._all.append(entry)
        if record.levelno >= logging.WARNING:
            self._warnings.append(entry)

    def entries(self, level: int, after: int, limit: int) -> list[LogEntry]:
        """The newest from this level and after this number, oldest first, limit at most."""
        kept = self._warnings if level >= logging.WARNING else self._all
        with self.lock or contextlib.nullcontext():
            found = [entry for entry in kept if entry.level >= level and entry.number > after]
        return found[-limit:]


recent = RecentLog()
"""Of this process."""


@dataclass(slots=True)
class _Repeated:
    until_s: float
    left_out: int = 0


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, and traceback where
    there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:_FIELD_LIMIT],
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def destination(file: Path) -> str | None:
    """Where this process's log goes: file, "journal", or None: to whoever has its stderr."""
    with contextlib.suppress(OSError):
        stderr = os.fstat(2)
        if os.environ.get("JOURNAL_STREAM") == f"{stderr.st_dev}:{stderr.st_ino}":
            return "journal"
        if os.path.samestat(stderr, file.stat()):
            return str(file)
    return None


def set_up(level: str, form: str = "text") -> None:
    """Log to stderr from level on ("debug", "info", ...). form: text or json."""
    handler = OncePerInterval(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler, recent], force=True)
    # httpcore's debug lines hold the headers of registries' answers, with tokens in their URLs.
    for name in (
        "asyncio",
        "uvicorn",
        "uvicorn.error",
        "uvicorn.access",
        "httpx",
        "httpcore",
        "urllib3",
    ):
        logging.getLogger(name).setLevel(logging.WARNING)
