"""The syntax of ECMA-262's regular expressions, as JSON schemas have them.

Edges of words (\\b) are replaced by what they ask of the characters beside them, where these are
known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runner.engine.schemas.languages import LAST, Ranges, complement, merged

_DIGITS: Ranges = ((48, 57),)
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = merged(
    [(9, 13), (32, 32), (160, 160), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
     (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)]
)  # fmt: skip
_LINE_ENDS: Ranges = ((10, 10), (13, 13), (0x2028, 0x2029))
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0}
_MAX_NESTING = 60


class NotRegular(Exception):
    """What a pattern has that is not taken here."""


@dataclass(frozen=True, slots=True)
class Part:
    """kind: set, seq, alt, repeat, start, end, edge (of a word), ahead, behind."""

    kind: str
    parts: tuple[Any, ...] = ()
    low: int = 0
    high: int | None = None
    negative: bool = False

    @property
    def looks(self) -> bool:
        """Whether it asks for more than its own text."""
        return self.kind in ("start", "end", "ahead", "behind") or any(
            part.looks for part in self.parts if isinstance(part, Part)
        )


START, END, _EDGE = Part("start"), Part("end"), Part("edge")


def parsed(pattern: str) -> Part:
    """What a pattern says. Raises NotRegular."""
    return _without_edges(_Parser(pattern).parsed())


def _without_edges(node: Part) -> Part:
    """The same without edges of words, where both sides are known. Raises NotRegular."""
    if node.kind == "alt":
        return Part("alt", tuple(map(_without_edges, node.parts)))
    parts, found = spliced(node), list[Part]()
    for at, part in enumerate(parts):
        if part.kind != "edge":
            if _has_edges(part):
                raise NotRegular(r"\b")
            found.append(part)
            continue
        sides = [
            _is_word(one, last) for one, last in ((parts[:at], True), (parts[at + 1 :], False))
        ]
        inner = sides[0] if at else sides[1]
        if at and parts[at + 1 :]:
            if None in sides or sides[0] == sides[1]:
                raise NotRegular(r"\b")
        elif inner is None or len(parts) == 1:
            raise NotRegular(r"\b")
        elif inner:  # of the pattern; before or behind it is no word, or nothing
            found.append(Part("alt", (END if at else START, Part("set", (complement(_WORD),)))))
        else:
            found.append(Part("set", (_WORD,)))
    return Part("seq", tuple(found))


def _has_edges(node: Part) -> bool:
    parts = (part for part in node.parts if isinstance(part, Part))
    return node.kind == "edge" or any(map(_has_edges, parts))


def _is_word(parts: tuple[Part, ...], last: bool) -> bool | None:
    """Whether the last character of the parts, or else the first one, is of a word; None: not
    known. Behind the beginning of a text, and before its end, it is not."""
    if not parts:
        return None
    node = parts[-1] if last else parts[0]
    if node.kind in ("start", "end"):
        return False
    if node.kind == "set":
        outside = complement(_WORD)
        inside = merged([*node.parts[0], *_WORD]) == merged(_WORD)
        return True if inside else False if merged([*node.parts[0], *outside]) == outside else None
    if node.kind == "repeat":
        return _is_word(node.parts, last) if node.low else None
    if node.kind == "seq":
        return _is_word(node.parts, last)
    sides = {_is_word((part,), last) for part in node.parts} if node.kind == "alt" else {None}
    return sides.pop() if len(sides) == 1 else None


def spliced(node: Part) -> tuple[Part, ...]:
    """The parts of a sequence, those of sequences in it too."""
    if node.kind != "seq":
        return (node,)
    return tuple(each for part in node.parts for each in spliced(part))


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0

    def parsed(self) -> Part:
        node = self._alternatives()
        if self._at < len(self._text):
            raise NotRegular("an unopened bracket")
        return node

    def _next(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise NotRegular("an unclosed bracket")
        self._at += 1
        return self._text[self._at - 1]

    def _alternatives(self) -> Part:
        self._depth += 1
        if self._depth > _MAX_NESTING:
            raise NotRegular("brackets that are nested too deeply")
        branches = [self._sequence()]
        while self._next("|"):
            branches.append(self._sequence())
        self._depth -= 1
        return branches[0] if len(branches) == 1 else Part("alt", tuple(branches))

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return Part("seq", tuple(parts))

    def _repeated(self, atom: Part) -> Part:
        if self._next("*"):
            low, high = 0, None
        elif self._next("+"):
            low, high = 1, None
        elif self._next("?"):
            low, high = 0, 1
        elif (counts := self._counts()) is not None:
            low, high = counts
        else:
            return atom
        self._next("?")
        return self._repeated(Part("repeat", (atom,), low, high))

    def _counts(self) -> tuple[int, int | None] | None:
        end = self._text.find("}", self._at)
        if not self._next("{"):
            return None
        first, comma, second = self._text[self._at : end].partition(",")
        if end < 0 or not first.isdecimal() or (second and not second.isdecimal()):
            self._at -= 1
            return None
        self._at = end + 1
        return int(first), (int(second) if second else None) if comma else int(first)

    def _atom(self) -> Part:
        if self._next("("):
            return self._group()
        character = self._take()
        if character == "^":
            return START
        if character == "$":
            return END
        if character == ".":
            return Part("set", (complement(_LINE_ENDS),))
        if character == "[":
            return Part("set", (self._set(),))
        if character == "\\":
            return _EDGE if self._next("b") else Part("set", (self._escaped(),))
        if character in "*+?":
            raise NotRegular("nothing to repeat")
        return Part("set", (((ord(character),) * 2,),))

    def _group(self) -> Part:
        for text, kind, negative in (
            ("?=", "ahead", False), ("?!", "ahead", True),
            ("?<=", "behind", False), ("?<!", "behind", True),
        ):  # fmt: skip
            if self._next(text):
                inner = self._alternatives()
                self._close()
                return Part(kind, (inner,), negative=negative)
        if self._next("?<") or self._next("?P<"):
            while self._take() != ">":
                pass
        elif not self._next("?:") and self._next("?"):
            raise NotRegular("an unknown kind of group")
        inner = self._alternatives()
        self._close()
        return inner

    def _close(self) -> None:
        if not self._next(")"):
            raise NotRegular("an unclosed bracket")

    def _escaped(self, *, in_set: bool = False) -> Ranges:
        character = self._take()
        if character.lower() in _CLASSES:
            ranges = _CLASSES[character.lower()]
            return ranges if character.islower() else complement(ranges)
        if character in _CONTROLS:
            code = _CONTROLS[character]
        elif character in "xu":
            code = self._code(character)
        elif character == "c":
            code = ord(self._take()) % 32
        elif character == "b" and in_set:
            code = 8
        elif character.isalnum():
            raise NotRegular(f"\\{character}")
        else:
            code = ord(character)
        return ((code, code),)

    def _code(self, character: str) -> int:
        if self._next("{"):
            end = self._text.find("}", self._at)
            digits, self._at = self._text[self._at : end], end + 1
        else:
            count = 2 if character == "x" else 4
            digits, self._at = self._text[self._at : self._at + count], self._at + count
        try:
            code = int(digits, 16)
        except ValueError:
            raise NotRegular(f"\\{character}{digits}") from None
        if not 0 <= code <= LAST:
            raise NotRegular(f"\\{character}{digits}")
        return code

    def _set(self) -> Ranges:
        negative = self._next("^")
        ranges: list[tuple[int, int]] = []
        while not self._next("]"):
            first = self._member()
            if self._text.startswith("-", self._at) and self._text[
                self._at + 1 : self._at + 2
            ] not in ("]", ""):
                self._at += 1
                second = self._member()
                single = len(first) == len(second) == 1 and first[0][0] == first[0][1]
                if not single or second[0][0] != second[0][1]:
                    ranges += [*first, (45, 45), *second]
                elif first[0][0] > second[0][0]:
                    raise NotRegular("a range of characters that is the wrong way round")
                else:
                    ranges.append((first[0][0], second[0][0]))
            else:
                ranges += first
        return complement(merged(ranges)) if negative else merged(ranges)

    def _member(self) -> Ranges:
        character = self._take()
        if character == "\\":
            return self._escaped(in_set=True)
        return ((ord(character), ord(character)),)
