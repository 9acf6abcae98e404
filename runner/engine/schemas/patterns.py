"""Regular expressions of ECMA-262, as JSON schemas have them, as languages.

Look-ahead is the intersection with what follows. Back references, word boundaries, Unicode
properties, and look-around in what is repeated have no language here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runner.engine.schemas.languages import (
    LAST,
    Languages,
    Ranges,
    Term,
    TooLarge,
    complement,
    merged,
    written_class,
)

_DIGITS: Ranges = ((48, 57),)
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = merged(
    [(9, 13), (32, 32), (160, 160), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
     (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)]
)  # fmt: skip
_LINE_ENDS: Ranges = ((10, 10), (13, 13), (0x2028, 0x2029))
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0}
# What JSON has an escape for, as a regular expression: the short one, where there is one
_ESCAPES = {code: rf"\\u{code:04x}" for code in (*range(32), 127)} | {
    ord(char): r"\\" + (f"\\x{{{ord(text):X}}}" if text in '"\\' else text)
    for char, text in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True)
}
_ANY_ESCAPE = r"\\(?:[\x{22}\x{5C}bfnrt]|u00(?:0[0-7bef]|1[0-9a-f]|7f))"
_MAX_UNROLLED = 8
_MAX_NESTING = 60
# What Rust takes for an empty set, sets within sets, or a count; first what is none of these
_FOREIGN = re.compile(
    r"\\[^c]|(?P<foreign>\[\^?\]|\[(?:[^\]\\]|\\.)*?(?:\[|&&|--|~~)|\{(?!\d+(?:,\d*)?\})|\\c)"
    r"|\[(?:[^\]\\]|\\.)*\]",
    re.ASCII,
)


class NotRegular(Exception):
    """What a pattern has that is not taken here."""


@dataclass(frozen=True, slots=True)
class _Node:
    """kind: set, seq, alt, repeat, start, end, ahead, behind."""

    kind: str
    parts: tuple[Any, ...] = ()
    low: int = 0
    high: int | None = None
    negative: bool = False

    @property
    def looks(self) -> bool:
        """Whether it asks for more than its own text."""
        return self.kind in ("start", "end", "ahead", "behind") or any(
            part.looks for part in self.parts if isinstance(part, _Node)
        )


_START, _END = _Node("start"), _Node("end")


def language(pattern: str, languages: Languages) -> Term:
    """The texts in which the pattern is found. Raises NotRegular, TooLarge."""
    return _Meaning(languages).found(_Parser(pattern).parsed())


def plain_patterns(pattern: str, languages: Languages) -> list[str]:
    """Patterns without look-around, of Rust's syntax, that a text with this one has all. Raises
    NotRegular, TooLarge."""
    node = _Parser(pattern).parsed()
    meaning = _Meaning(languages)
    if not _looks_around(node):
        if _repeats_anchor(node):
            return [languages.regex(meaning.found(node))]
        return ["".join(map(_written, _spliced(node))) if is_foreign(pattern) else pattern]
    parts = _spliced(node)
    if node.kind == "alt" or not parts or parts[0].kind != "start":
        return [languages.regex(meaning.found(node))]
    found, core = [], list(parts[1:])
    while core and core[0].kind == "ahead":
        ahead = core.pop(0)
        try:
            found.append(languages.regex(meaning.seen(ahead)))
        except TooLarge:
            found.append(languages.regex(meaning.unbounded(ahead, tuple(core))))
    if len(core) > 1 and core[-1].kind == "end" and core[-2].kind == "behind":
        found.append(languages.regex(meaning.at_end(core.pop(-2))))
    if any(map(_looks_around, core)):
        found.append(languages.regex(meaning.ended(tuple(core))))
    else:
        found.append("^" + "".join(map(_written, core)))
    return found


def json_expression(pattern: str) -> str | None:
    """A regular expression of Rust's syntax for JSON strings in which the pattern is found, each
    character written in one way; None: it looks around. Raises NotRegular."""
    parts = list(_spliced(_Parser(pattern).parsed()))
    any_text = f"{_written_json(_Node('set', (((0, LAST),),)))}*"
    before = after = any_text
    while parts and parts[0].kind == "start":
        before, parts = "", parts[1:]
    while parts and parts[-1].kind == "end":
        after, parts = "", parts[:-1]
    if any(part.looks for part in parts):
        return None
    return f'"{before}{"".join(map(_written_json, parts))}{after}"'


def _written_json(node: _Node) -> str:
    if node.kind != "set":
        return _written(node, _written_json)
    ranges: Ranges = node.parts[0]
    escaped = [text for code, text in _ESCAPES.items()
               if any(low <= code <= high for low, high in ranges)]  # fmt: skip
    if len(escaped) == len(_ESCAPES):
        escaped = [_ANY_ESCAPE]
    others = complement(merged([*complement(ranges), *((code, code) for code in _ESCAPES)]))
    ways = [written_class(others)] if others or not escaped else []
    return f"(?:{'|'.join([*ways, *escaped])})" if escaped else ways[0]


def is_foreign(pattern: str) -> bool:
    """Whether Rust may take a pattern for something else, or for none."""
    return any(found["foreign"] for found in _FOREIGN.finditer(pattern))


def _written(node: _Node, inner: Callable[[_Node], str] | None = None) -> str:
    """inner: writes what is in it."""
    inner = inner or _written
    if node.kind == "set":
        return written_class(node.parts[0])
    if node.kind == "repeat":
        high = "" if node.high is None else node.high
        return f"(?:{inner(node.parts[0])}){{{node.low},{high}}}"
    if node.kind in ("start", "end"):
        return "^" if node.kind == "start" else "$"
    between = "|" if node.kind == "alt" else ""
    return f"(?:{between.join(map(inner, node.parts))})"


def _looks_around(node: _Node) -> bool:
    return node.kind in ("ahead", "behind") or any(
        _looks_around(part) for part in node.parts if isinstance(part, _Node)
    )


def _repeats_anchor(node: _Node) -> bool:
    parts = (part for part in node.parts if isinstance(part, _Node))
    return (node.kind == "repeat" and node.looks) or any(map(_repeats_anchor, parts))


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0

    def parsed(self) -> _Node:
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

    def _alternatives(self) -> _Node:
        self._depth += 1
        if self._depth > _MAX_NESTING:
            raise NotRegular("brackets that are nested too deeply")
        branches = [self._sequence()]
        while self._next("|"):
            branches.append(self._sequence())
        self._depth -= 1
        return branches[0] if len(branches) == 1 else _Node("alt", tuple(branches))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return _Node("seq", tuple(parts))

    def _repeated(self, atom: _Node) -> _Node:
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
        return self._repeated(_Node("repeat", (atom,), low, high))

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

    def _atom(self) -> _Node:
        if self._next("("):
            return self._group()
        character = self._take()
        if character == "^":
            return _START
        if character == "$":
            return _END
        if character == ".":
            return _Node("set", (complement(_LINE_ENDS),))
        if character == "[":
            return _Node("set", (self._set(),))
        if character == "\\":
            return _Node("set", (self._escaped(),))
        if character in "*+?":
            raise NotRegular("nothing to repeat")
        return _Node("set", (((ord(character),) * 2,),))

    def _group(self) -> _Node:
        for text, kind, negative in (
            ("?=", "ahead", False), ("?!", "ahead", True),
            ("?<=", "behind", False), ("?<!", "behind", True),
        ):  # fmt: skip
            if self._next(text):
                inner = self._alternatives()
                self._close()
                return _Node(kind, (inner,), negative=negative)
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


class _Meaning:
    """From what was parsed to languages."""

    def __init__(self, languages: Languages) -> None:
        self._l = languages

    def found(self, node: _Node) -> Term:
        """Texts with the pattern in them."""
        if node.kind == "alt":
            return self._l.union(self.found(branch) for branch in node.parts)
        parts = _spliced(node)
        if parts and parts[0].kind == "alt" and _begins(parts[0]):
            rest = parts[1:]
            return self._l.union(
                self.found(_Node("seq", (branch, *rest))) for branch in parts[0].parts
            )
        if parts and parts[0].kind == "start":
            while parts and parts[0].kind == "start":
                parts = parts[1:]
            return self.ended(parts)
        leading = []
        while parts and parts[0].kind == "ahead" and _begins(parts[0]):
            leading.append(self.seen(parts[0]))
            parts = parts[1:]
        if leading:  # it must stand at the beginning, or where nothing begins
            raise NotRegular("^ in a look-ahead that is not at the beginning")
        return self._l.cat(self._l.all, self.ended(parts))

    def seen(self, node: _Node) -> Term:
        """Texts in front of which a look-ahead holds."""
        (inner,) = node.parts
        seen = self._from_start(inner)
        return self._l.other(seen) if node.negative else seen

    def unbounded(self, ahead: _Node, core: tuple[_Node, ...]) -> Term:
        """What seen gives, for fewer states: without upper bounds of repetitions, where these make
        no difference before what follows. Raises TooLarge where they do."""
        exact, simple = self.seen(ahead), self.seen(_unbounded(ahead))
        rest = self.ended(core)
        for one, other in ((exact, simple), (simple, exact)):
            if not self._l.is_empty(self._l.both([one, self._l.other(other), rest])):
                raise TooLarge
        return simple

    def _from_start(self, inner: _Node) -> Term:
        """Texts that begin with it."""
        if inner.kind == "alt":
            return self._l.union(self._from_start(branch) for branch in inner.parts)
        parts = _spliced(inner)
        while parts and parts[0].kind == "start":
            parts = parts[1:]
        return self._followed(parts, self._l.all)

    def ended(self, parts: tuple[_Node, ...]) -> Term:
        """Texts that begin so; a look-behind may stand at their end."""
        for at, part in enumerate(parts):
            if part.kind == "behind":
                if any(other.kind != "end" for other in parts[at + 1 :]) or at + 1 == len(parts):
                    raise NotRegular("look-behind that is not at the end")
                before = self._followed((*parts[:at], _END), self._l.all)
                return self._l.both([before, self.at_end(part)])
        return self._followed(parts, self._l.all, at_start=True)

    def at_end(self, behind: _Node) -> Term:
        """Texts at whose end a look-behind holds."""
        seen = self._l.cat(self._l.all, self._plain(behind.parts[0]))
        return self._l.other(seen) if behind.negative else seen

    def _followed(self, parts: tuple[_Node, ...], rest: Term, *, at_start: bool = False) -> Term:
        for at in range(len(parts) - 1, -1, -1):
            rest = self._step(parts[at], rest, at_start=at_start and at == 0)
        return rest

    def _step(self, node: _Node, rest: Term, *, at_start: bool = False) -> Term:
        languages = self._l
        if node.kind == "alt":
            return languages.union(
                self._step(branch, rest, at_start=at_start) for branch in node.parts
            )
        if node.kind == "seq":
            return self._followed(node.parts, rest, at_start=at_start)
        if node.kind == "end":
            return languages.blank if rest.empty else languages.nothing
        if node.kind == "start":
            return rest if at_start else languages.nothing
        if node.kind == "ahead":
            if _begins(node) and not at_start:
                raise NotRegular("^ in a look-ahead that is not at the beginning")
            return languages.both([rest, self.seen(node)])
        if node.kind == "behind":
            raise NotRegular("look-behind that is not at the end")
        if not node.looks:
            return languages.cat(self._plain(node), rest)
        return self._unrolled(node, rest, at_start=at_start)

    def _unrolled(self, node: _Node, rest: Term, *, at_start: bool) -> Term:
        """A repetition of what looks around."""
        (inner,) = node.parts
        if node.high is None and rest is self._l.blank and (free := self._free_of(inner)):
            single, seen = free
            none = self._l.other(self._l.cat(self._l.all, seen))
            return self._l.both([self._l.repeat(single, node.low, None), none])
        if node.high is None or node.high > _MAX_UNROLLED:
            raise NotRegular("look-around in what is repeated")
        found = rest
        for count in range(node.high, 0, -1):
            once = self._step(inner, found, at_start=at_start and count == 1)
            found = once if count <= node.low else self._l.union([rest, once])
        return found

    def _free_of(self, inner: _Node) -> tuple[Term, Term] | None:
        """For (?!x)c: the characters c, and what begins with x."""
        parts = _spliced(inner)
        if len(parts) != 2 or parts[0].kind != "ahead" or not parts[0].negative:
            return None
        if parts[1].looks or parts[1].kind != "set":
            return None
        seen = self._from_start(parts[0].parts[0])
        # at the end nothing is looked at
        return self._plain(parts[1]), self._l.both([seen, self._l.other(self._l.blank)])

    def _plain(self, node: _Node) -> Term:
        if node.kind == "set":
            return self._l.chars(node.parts[0])
        if node.kind == "alt":
            return self._l.union(map(self._plain, node.parts))
        if node.kind == "repeat":
            return self._l.repeat(self._plain(node.parts[0]), node.low, node.high)
        if node.kind != "seq":
            raise NotRegular("look-around within look-around")
        found = self._l.blank
        for part in reversed(node.parts):
            found = self._l.cat(self._plain(part), found)
        return found


def _spliced(node: _Node) -> tuple[_Node, ...]:
    """The parts of a sequence, those of sequences in it too."""
    if node.kind != "seq":
        return (node,)
    return tuple(each for part in node.parts for each in _spliced(part))


def _unbounded(node: _Node) -> _Node:
    parts = tuple(_unbounded(part) if isinstance(part, _Node) else part for part in node.parts)
    return _Node(node.kind, parts, node.low, None, node.negative)


def _begins(node: _Node) -> bool:
    """Whether it has ^ somewhere."""
    return node.kind == "start" or any(
        _begins(each) for each in node.parts if isinstance(each, _Node)
    )
