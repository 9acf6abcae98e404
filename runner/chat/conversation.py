"""Puts a bundle's own turns before a conversation. Text only; knows no wire format."""

from __future__ import annotations

from collections.abc import Iterable

from runner.types import Message


def with_bundle_turns(
    messages: Iterable[Message], system: str | None, examples: Iterable[Message]
) -> tuple[Message, ...]:
    """messages, after the bundle's SYSTEM and MESSAGEs when they have no system message of
    their own."""
    own = tuple(messages)
    if any(message.role in ("system", "developer") for message in own):
        return own
    before = () if not system else (Message("system", system),)
    return (*before, *examples, *own)
