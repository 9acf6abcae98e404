"""The daemon's log: one line for each record on stderr. Never prompts, answers or keys."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

_FIELD_LIMIT = 4096


class LineFormatter(logging.Formatter):
    """Time, level, logger, message. Control characters from names or paths are escaped, so that
    nothing a client sends can forge a line; only tracebacks have several lines."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without its traceback."""
        text = super().formatMessage(record)[:_FIELD_LIMIT]
        return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # httpcore's debug lines hold the headers of registries' answers, with tokens in their URLs.
    for name in ("asyncio", "uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
