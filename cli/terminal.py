"""What is known of the terminal: whether there is one, what it can do, how wide it is."""

from __future__ import annotations

import os
import shutil
import sys
from textwrap import wrap
from typing import TextIO


def is_terminal(stream: TextIO) -> bool:
    """Whether a person watches this stream."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def can_move(stream: TextIO) -> bool:
    """Whether the cursor of this stream can be moved: redrawn lines, spinners, bars."""
    return is_terminal(stream) and os.environ.get("TERM") not in ("dumb", "")


def can_colour(stream: TextIO) -> bool:
    """Whether escape codes for colour are welcome. NO_COLOR wins over everything."""
    return not os.environ.get("NO_COLOR") and can_move(stream)


def columns() -> int:
    """The width of the terminal, in cells."""
    return shutil.get_terminal_size().columns


def fitted(text: str, stream: TextIO) -> str:
    """text in lines that a terminal need not cut within words; as it is where no terminal is."""
    if not is_terminal(stream):
        return text
    width = max(columns(), 16)
    lines = (wrap(line, width, break_long_words=False, break_on_hyphens=False)
             for line in text.split("\n"))  # fmt: skip
    return "\n".join("\n".join(line) for line in lines)


def status(text: str) -> None:
    """What the person who waits should know, on stderr."""
    print(fitted(text, sys.stderr), file=sys.stderr, flush=True)
