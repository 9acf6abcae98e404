'''Messages of several lines: they begin and end with """.'''

from __future__ import annotations

import re

QUOTE = '"""'
_OPENING = re.compile(r'\s*(/set\s+system\s+)?"""')


def is_open(text: str) -> bool:
    """Whether the text began with a quote and has not ended with one. Quotes inside stand in
    pairs, as those of a Python docstring, and end nothing."""
    start = _OPENING.match(text)
    if start is None:
        return False
    rest = text[start.end() :].rstrip()
    return not rest.endswith(QUOTE) or rest.count(QUOTE) % 2 == 0


def unquoted(text: str) -> str:
    """The text without the quotes around it and the line ends next to them."""
    start = _OPENING.match(text)
    if start is None:
        return text
    inner = text[start.end() :].rstrip().removesuffix(QUOTE)
    return f"{start.group(1) or ''}{inner.strip(chr(10))}"
