"""Regular expressions of ECMA-262, as JSON schemas have them, as languages.

Look-ahead is the intersection with what follows. Back references, Unicode properties, look-around
in what is repeated, and most edges of words (\\b) have no language here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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
from runner.engine.schemas.pattern_syntax import END, NotRegular, Part, parsed, spliced

# What JSON has an escape for, as a regular expression: the short one, where there is one
_ESCAPES = {code: rf"\\u{code:04x}" for code in (*range(32), 127)} | {
    ord(char): r"\\" + (f"\\x{{{ord(text):X}}}" if text in '"\\' else text)
    for char, text in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True)
}
_ANY_ESCAPE = r"\\(?:[\x{22}\x{5C}bfnrt]|u00(?:0[0-7bef]|1[0-9a-f]|7f))"
_MAX_UNROLLED = 8
# What Rust takes for an empty set, sets within sets, or a count; first what is none of these
_FOREIGN = re.compile(
    r"\\[^c]|(?P<foreign>\[\^?\]|\[(?:[^\]\\]|\\.)*?(?:\[|&&|--|~~)|\{(?!\d+(?:,\d*)?\})|\\c)"
    r"|\[(?:[^\]\\]|\\.)*\]",
    re.ASCII,
)


def language(pattern: str, languages: Languages) -> Term:
    """The texts in which the pattern is found. Raises NotRegular, TooLarge."""
    return _Meaning(languages).found(parsed(pattern))


def plain_patterns(pattern: str, languages: Languages) -> list[str]:
    """Patterns without look-around, of Rust's syntax, that a text with this one has all. Raises
    NotRegular, TooLarge."""
    node = parsed(pattern)
    meaning = _Meaning(languages)
    if not _looks_around(node):
        if _repeats_anchor(node):
            return [languages.regex(meaning.found(node))]
        is_changed = is_foreign(pattern) or r"\b" in pattern
        return ["".join(map(_written, spliced(node))) if is_changed else pattern]
    parts = spliced(node)
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
    parts = list(spliced(parsed(pattern)))
    any_text = f"{_written_json(Part('set', (((0, LAST),),)))}*"
    before = after = any_text
    while parts and parts[0].kind == "start":
        before, parts = "", parts[1:]
    while parts and parts[-1].kind == "end":
        after, parts = "", parts[:-1]
    if any(part.looks for part in parts):
        return None
    return f'"{before}{"".join(map(_written_json, parts))}{after}"'


def _written_json(node: Part) -> str:
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


def _written(node: Part, inner: Callable[[Part], str] | None = None) -> str:
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


def _looks_around(node: Part) -> bool:
    return node.kind in ("ahead", "behind") or any(
        _looks_around(part) for part in node.parts if isinstance(part, Part)
    )


def _repeats_anchor(node: Part) -> bool:
    parts = (part for part in node.parts if isinstance(part, Part))
    return (node.kind == "repeat" and node.looks) or any(map(_repeats_anchor, parts))


class _Meaning:
    """From what was parsed to languages."""

    def __init__(self, languages: Languages) -> None:
        self._l = languages

    def found(self, node: Part) -> Term:
        """Texts with the pattern in them."""
        if node.kind == "alt":
            return self._l.union(self.found(branch) for branch in node.parts)
        parts = spliced(node)
        if parts and parts[0].kind == "alt" and _begins(parts[0]):
            rest = parts[1:]
            return self._l.union(
                self.found(Part("seq", (branch, *rest))) for branch in parts[0].parts
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

    def seen(self, node: Part) -> Term:
        """Texts in front of which a look-ahead holds."""
        (inner,) = node.parts
        seen = self._from_start(inner)
        return self._l.other(seen) if node.negative else seen

    def unbounded(self, ahead: Part, core: tuple[Part, ...]) -> Term:
        """What seen gives, for fewer states: without upper bounds of repetitions, where these make
        no difference before what follows. Raises TooLarge where they do."""
        exact, simple = self.seen(ahead), self.seen(_unbounded(ahead))
        rest = self.ended(core)
        for one, other in ((exact, simple), (simple, exact)):
            if not self._l.is_empty(self._l.both([one, self._l.other(other), rest])):
                raise TooLarge
        return simple

    def _from_start(self, inner: Part) -> Term:
        """Texts that begin with it."""
        if inner.kind == "alt":
            return self._l.union(self._from_start(branch) for branch in inner.parts)
        parts = spliced(inner)
        while parts and parts[0].kind == "start":
            parts = parts[1:]
        return self._followed(parts, self._l.all)

    def ended(self, parts: tuple[Part, ...]) -> Term:
        """Texts that begin so; a look-behind may stand at their end."""
        for at, part in enumerate(parts):
            if part.kind == "behind":
                if any(other.kind != "end" for other in parts[at + 1 :]) or at + 1 == len(parts):
                    raise NotRegular("look-behind that is not at the end")
                before = self._followed((*parts[:at], END), self._l.all)
                return self._l.both([before, self.at_end(part)])
        return self._followed(parts, self._l.all, at_start=True)

    def at_end(self, behind: Part) -> Term:
        """Texts at whose end a look-behind holds."""
        seen = self._l.cat(self._l.all, self._plain(behind.parts[0]))
        return self._l.other(seen) if behind.negative else seen

    def _followed(self, parts: tuple[Part, ...], rest: Term, *, at_start: bool = False) -> Term:
        for at in range(len(parts) - 1, -1, -1):
            rest = self._step(parts[at], rest, at_start=at_start and at == 0)
        return rest

    def _step(self, node: Part, rest: Term, *, at_start: bool = False) -> Term:
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

    def _unrolled(self, node: Part, rest: Term, *, at_start: bool) -> Term:
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

    def _free_of(self, inner: Part) -> tuple[Term, Term] | None:
        """For (?!x)c: the characters c, and what begins with x."""
        parts = spliced(inner)
        if len(parts) != 2 or parts[0].kind != "ahead" or not parts[0].negative:
            return None
        if parts[1].looks or parts[1].kind != "set":
            return None
        seen = self._from_start(parts[0].parts[0])
        # at the end nothing is looked at
        return self._plain(parts[1]), self._l.both([seen, self._l.other(self._l.blank)])

    def _plain(self, node: Part) -> Term:
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


def _unbounded(node: Part) -> Part:
    parts = tuple(_unbounded(part) if isinstance(part, Part) else part for part in node.parts)
    return Part(node.kind, parts, node.low, None, node.negative)


def _begins(node: Part) -> bool:
    """Whether it has ^ somewhere."""
    return node.kind == "start" or any(
        _begins(each) for each in node.parts if isinstance(each, Part)
    )
