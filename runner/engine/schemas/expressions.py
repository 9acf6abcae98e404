"""Schemas as logic: a schema of the document, and what is made of some by not, and, or."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


class Unsupported(Exception):
    """What of a schema cannot be enforced. path: the schema's place, once it is known."""

    def __init__(self, reason: str, path: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.path = reason, path


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A schema of the document. base: the URI that its references start from. scope: those of the
    resources on the way to it, outermost first, which have anchors for dynamic references."""

    schema: Any
    path: str
    base: str
    scope: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Not:
    """What does not match."""

    part: Node | And | Or


@dataclass(frozen=True, slots=True)
class And:
    """What matches all of these."""

    parts: tuple[Node | Not | Or, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """What matches one of these, or several."""

    parts: tuple[Node | Not | And, ...]


Expression = bool | Node | Not | And | Or


def all_of(parts: Iterable[Expression]) -> Expression:
    """What matches all of these."""
    found: dict[Any, None] = {}
    for part in parts:
        if part is False:
            return False
        if part is not True:
            found.update(dict.fromkeys(part.parts if isinstance(part, And) else (part,)))
    if any(isinstance(part, Not) and part.part in found for part in found):
        return False
    if len(found) < 2:
        return next(iter(found), True)
    return And(tuple(found))


def any_of(parts: Iterable[Expression]) -> Expression:
    """What matches one of these."""
    found: dict[Any, None] = {}
    for part in parts:
        if part is True:
            return True
        if part is not False:
            found.update(dict.fromkeys(part.parts if isinstance(part, Or) else (part,)))
    if len(found) < 2:
        return next(iter(found), False)
    return Or(tuple(found))


def negated(part: Expression) -> Expression:
    """What does not match."""
    if isinstance(part, bool):
        return not part
    return part.part if isinstance(part, Not) else Not(part)


def place_of(part: Node | Not | And | Or) -> str:
    """A path for messages."""
    if isinstance(part, Node):
        return part.path
    return place_of(part.part if isinstance(part, Not) else part.parts[0])
