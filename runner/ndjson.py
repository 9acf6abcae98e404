"""Lines of JSON as they come over HTTP, in parts that end anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def lines_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines ended by a line feed only: others also end at U+2028, which JSON may hold."""
    pending = b""
    for chunk in chunks:
        *lines, pending = (pending + chunk).split(b"\n")
        yield from (line for line in lines if line.strip())
    if pending.strip():
        yield pending
