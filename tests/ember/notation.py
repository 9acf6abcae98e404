"""Short notations for the tables: words in a row, and pairs."""

from __future__ import annotations


def words(text: str) -> tuple[str, ...]:
    """The words of `text`."""
    return tuple(text.split())


def pairs(text: str) -> dict[str, str]:
    """`key: value; key: value` as a dict in that order."""
    found: dict[str, str] = {}
    for entry in text.split(";"):
        key, value = entry.split(":", 1)
        found[" ".join(key.split())] = " ".join(value.split())
    return found


def phrasings(text: str) -> tuple[str, ...]:
    """`one way to say it | another way`, over as many lines as wanted."""
    return tuple(" ".join(part.split()) for part in text.split("|"))
