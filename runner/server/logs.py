"""The daemon's log: one line for each record on stderr. Never prompts, answers or keys."""

from __future__ import annotations

import logging
import sys

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


def set_up(level: str) -> None:
    """Log to stderr from level on ("debug", "info", ...)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in ("asyncio", "uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
