"""Puts a bundle's own turns before a conversation. Text only; knows no wire format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from runner.types import Message

SYSTEM_ROLES: Final = ("system", "developer")


def with_bundle_turns(
    messages: Iterable[Message], system: str | None, examples: Iterable[Message]
) -> tuple[Message, ...]:
    """messages, after the bundle's SYSTEM and MESSAGEs when they have no system message of
    their own."""
    own = tuple(messages)
    if any(message.role in SYSTEM_ROLES for message in own):
        return own
    before = () if not system else (Message("system", system),)
    return (*before, *examples, *own)


def open_turn(messages: Sequence[Message]) -> tuple[tuple[Message, ...], bool]:
    """The messages to render, and whether the answer goes on where the last one ends: when that is
    the model's own. One that says nothing is left out, since any answer goes on from it; one that
    calls tools has ended."""
    own = tuple(messages)
    last = own[-1] if own else None
    if last is None or last.role != "assistant" or last.tool_calls:
        return own, False
    if not last.content and not last.reasoning and len(own) > 1:
        return own[:-1], False
    return own, True
