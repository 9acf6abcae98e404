'''Messages of several lines: they begin and end with """.'''

from __future__ import annotations

import re
from collections.abc import Callable

QUOTE = '"""'
_OPENING = re.compile(r'\s*(/set\s+system\s+)?"""')


def read_message(ask: Callable[[bool], str]) -> str:
    """One message from ask(continued), which reads a line. Quotes are taken off.

    What ask raises (end of input, Ctrl-C) passes through, and the lines so far are dropped.
    """
    text = ask(False)
    while is_open(text):
        text = f"{text}\n{ask(True)}"
    return unquoted(text)


def is_open(text: str) -> bool:
    """Whether the text began with a quote that has not ended."""
    start = _OPENING.match(text)
    return start is not None and QUOTE not in text[start.end() :]


def unquoted(text: str) -> str:
    """The text without the quotes around it and the line ends next to them."""
    start = _OPENING.match(text)
    if start is None:
        return text
    inner, _, after = text[start.end() :].partition(QUOTE)
    return f"{start.group(1) or ''}{inner.strip(chr(10))}{after.rstrip()}"
