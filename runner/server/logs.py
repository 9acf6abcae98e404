"""The daemon's log: one line for each record on stderr. Never prompts, answers or keys."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

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


def set_up(level: str, form: str = "text") -> None:
    """Log to stderr from level on ("debug", "info", ...). form: text or json."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in ("asyncio", "uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
