"""Sizes, times, durations and tables as people read them. Knows no command."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from cli.terminal import can_colour, columns, is_terminal
from cli.wrap import cell_width

_UNITS = ("B", "KB", "MB", "GB", "TB")
_SPANS = (
    ("year", 365 * 86400),
    ("month", 30 * 86400),
    ("week", 7 * 86400),
    ("day", 86400),
    ("hour", 3600),
    ("minute", 60),
    ("second", 1),
)
FOREVER_S = 10 * 365 * 86400


def size(size_bytes: float) -> str:
    """Decimal units as disks and other model lists use them: "4.7 GB", "532 B"."""
    value = float(size_bytes)
    for unit in _UNITS:
        if value < 999.5 or unit == _UNITS[-1]:
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 9.95 else f"{value:.1f} {unit}"


def span(seconds: float) -> str:
    """A length of time in its largest unit: "2 hours", "1 minute"."""
    for name, length_s in _SPANS:
        count = int(seconds // length_s)
        if count >= 1:
            return f"{count} {name}{'s' if count > 1 else ''}"
    return "less than a second"


def ago(moment: str | None, now: datetime) -> str:
    """An RFC 3339 time relative to now: "3 days ago", "4 minutes from now", "Forever"."""
    when = _moment(moment)
    if when is None:
        return "-"
    seconds = (when - now).total_seconds()
    if seconds > FOREVER_S:
        return "Forever"
    return f"{span(seconds)} from now" if seconds > 0 else f"{span(-seconds)} ago"


def until(moment: str | None, now: datetime) -> str:
    """When a loaded model leaves memory."""
    when = _moment(moment)
    if when is None:
        return "Forever"
    return "Stopping..." if when <= now else ago(moment, now)


def _moment(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    if when.year <= 1:
        return None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def processor(size_bytes: int, vram_bytes: int) -> str:
    """Where a model's memory is: "100% CPU", "100% GPU", "48%/52% CPU/GPU"."""
    if size_bytes <= 0:
        return "Unknown"
    gpu = min(100, round(100 * vram_bytes / size_bytes))
    if gpu in (0, 100):
        return "100% GPU" if gpu else "100% CPU"
    return f"{100 - gpu}%/{gpu}% CPU/GPU"


def short_digest(digest: str | None) -> str:
    """The twelve characters that identify a model in lists."""
    return (digest or "").removeprefix("sha256:")[:12] or "-"


def duration(nanoseconds: int) -> str:
    """A duration as Go prints it, because users of Ollama read and parse these: "1.5s",
    "12.3ms", "2m3.4s"."""
    if nanoseconds < 1_000_000_000:
        for unit, length_ns in (("ms", 1_000_000), ("µs", 1000)):
            if nanoseconds >= length_ns:
                return f"{_decimal(nanoseconds, length_ns)}{unit}"
        return f"{nanoseconds}ns" if nanoseconds else "0s"
    minutes, rest = divmod(nanoseconds, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest, 1_000_000_000)}s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def print_json(value: Any) -> None:
    """A value on stdout for programs."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout: aligned columns, as close as a terminal needs them, and the whole of every
    cell also where it is no terminal."""
    from rich.table import Table
    from rich.text import Text

    gap = 4
    if is_terminal(sys.stdout):
        cells = sum(max(map(cell_width, column)) for column in zip(header, *rows, strict=True))
        gap = max(1, min(gap, (columns() - cells) // len(header)))
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    print_rich(table)


def print_rich(*renderables: Any) -> None:
    """Draw with rich on stdout, wide enough never to cut where no terminal limits it."""
    from rich.console import Console

    width = None if is_terminal(sys.stdout) else 10_000
    console = Console(
        file=sys.stdout,
        width=width,
        no_color=not can_colour(sys.stdout),
        highlight=False,
        soft_wrap=width is not None,
    )
    for renderable in renderables:
        console.print(renderable)
