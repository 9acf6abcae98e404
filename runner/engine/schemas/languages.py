"""Regular languages over Unicode, with complement and intersection.

Terms are made by one Languages and compared by identity; states of an automaton are terms, reached
by derivatives (Brzozowski 1964; Owens, Reppy, Turon 2009). Knows no JSON.
"""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

LAST = 0x10FFFF
MAX_STATES = 2_000
MAX_REGEX_CHARS = 40_000
_MAX_TERMS = 40_000
_MAX_NESTED = 200  # brackets; Rust takes 250
_END = ""  # of a text, in a tree of texts

Ranges = tuple[tuple[int, int], ...]  # sorted, disjoint, both ends in them


class TooLarge(Exception):
    """An automaton, or what is written for it, exceeds its limit, or the time is over."""


class Term:
    """A language. args: by op, terms, ranges or counts. empty: it has the empty text."""

    __slots__ = ("args", "empty", "op")

    def __init__(self, op: str, args: tuple[object, ...], empty: bool) -> None:
        self.op, self.args, self.empty = op, args, empty


class Languages:
    """Makes terms. Every method raises TooLarge."""

    def __init__(self, end_s: float = math.inf) -> None:
        """end_s: on this thread's clock of processor time; then everything is too large."""
        self._end_s = end_s
        self._known: dict[tuple[object, ...], Term] = {}
        self._derived: dict[tuple[Term, int], Term] = {}
        self._cut: dict[Term, frozenset[int]] = {}
        self.nothing = self._term("none", (), False)
        self.blank = self._term("blank", (), True)
        self.all = self.repeat(self.chars(((0, LAST),)), 0, None)

    def _term(self, op: str, args: tuple[object, ...], empty: bool) -> Term:
        key = (op, *args)
        if key not in self._known:
            if len(self._known) > _MAX_TERMS:
                raise TooLarge
            self._known[key] = Term(op, args, empty)
        return self._known[key]

    def chars(self, ranges: Ranges) -> Term:
        """One of these characters."""
        return self._term("chars", (ranges,), False) if ranges else self.nothing

    def text(self, text: str) -> Term:
        """Exactly this text."""
        found = self.blank
        for character in reversed(text):
            found = self.cat(self.chars(((ord(character),) * 2,)), found)
        return found

    def cat(self, first: Term, second: Term) -> Term:
        """A text of first, and then one of second."""
        if first is self.nothing or second is self.nothing:
            return self.nothing
        if first is self.blank:
            return second
        if second is self.blank:
            return first
        if first.op == "cat":
            one, rest = first.args
            assert isinstance(one, Term)
            assert isinstance(rest, Term)
            return self.cat(one, self.cat(rest, second))
        return self._term("cat", (first, second), first.empty and second.empty)

    def union(self, parts: Iterable[Term]) -> Term:
        """What is in one of these."""
        found: dict[Term, None] = {}
        ranges: list[tuple[int, int]] = []
        for part in _flat("or", parts):
            if part is self.all:
                return self.all
            if part.op == "chars":
                ranges += part.args[0]  # type: ignore[arg-type]
            elif part is not self.nothing:
                found[part] = None
        if ranges:
            found[self.chars(merged(ranges))] = None
        if not found:
            return self.nothing
        if len(found) == 1:
            return next(iter(found))
        return self._term("or", tuple(sorted(found, key=id)), any(part.empty for part in found))

    def both(self, parts: Iterable[Term]) -> Term:
        """What is in all of these."""
        found = dict.fromkeys(part for part in _flat("and", parts) if part is not self.all)
        if self.nothing in found:
            return self.nothing
        if self.blank in found:
            return self.blank if all(part.empty for part in found) else self.nothing
        if not found:
            return self.all
        if len(found) == 1:
            return next(iter(found))
        return self._term("and", tuple(sorted(found, key=id)), all(part.empty for part in found))

    def other(self, part: Term) -> Term:
        """What is not in it."""
        if part is self.nothing:
            return self.all
        if part is self.all:
            return self.nothing
        if part.op == "not":
            return part.args[0]  # type: ignore[return-value]
        return self._term("not", (part,), not part.empty)

    def repeat(self, part: Term, low: int, high: int | None) -> Term:
        """So many texts of part, one behind the other; high None: any number."""
        if high == 0 or part is self.blank:
            return self.blank
        if part is self.nothing:
            return self.nothing if low else self.blank
        if (low, high) == (1, 1):
            return part
        if part.op == "repeat" and (low, high) == (0, None) and part.args[1:] == (0, None):
            return part
        return self._term("repeat", (part, low, high), low == 0 or part.empty)

    def after(self, term: Term, character: int) -> Term:
        """What may follow this character."""
        cuts = sorted(self.cuts(term))
        start = cuts[bisect.bisect_right(cuts, character) - 1]
        key = (term, start)
        if key not in self._derived:
            self._check_time()
            self._derived[key] = self._after(term, start)
        return self._derived[key]

    def _check_time(self) -> None:
        if time.thread_time() > self._end_s:
            raise TooLarge

    def _after(self, term: Term, at: int) -> Term:
        args = term.args
        if term.op == "chars":
            inside = any(low <= at <= high for low, high in args[0])  # type: ignore[attr-defined]
            return self.blank if inside else self.nothing
        parts = [part for part in args if isinstance(part, Term)]
        if term.op == "cat":
            first = self.cat(self.after(parts[0], at), parts[1])
            return self.union([first, self.after(parts[1], at)]) if parts[0].empty else first
        if term.op == "repeat":
            low, high = args[1:]
            assert isinstance(low, int)
            assert high is None or isinstance(high, int)
            rest = self.repeat(parts[0], max(low - 1, 0), None if high is None else high - 1)
            return self.cat(self.after(parts[0], at), rest)
        derived = [self.after(part, at) for part in parts]
        if term.op == "or":
            return self.union(derived)
        if term.op == "and":
            return self.both(derived)
        return self.other(derived[0]) if term.op == "not" else self.nothing

    def cuts(self, term: Term) -> frozenset[int]:
        """Where characters begin to matter otherwise than the one before them; 0 is one."""
        if term not in self._cut:
            parts = [part for part in term.args if isinstance(part, Term)]
            if term.op == "chars":
                ranges: Ranges = term.args[0]  # type: ignore[assignment]
                points = {0} | {low for low, _ in ranges} | {high + 1 for _, high in ranges}
                found = frozenset(points - {LAST + 1})
            else:
                if term.op == "cat" and not parts[0].empty:
                    parts = parts[:1]
                found = frozenset((0,)).union(*map(self.cuts, parts))
            self._cut[term] = found
        return self._cut[term]

    def matches(self, term: Term, text: str) -> bool:
        """Whether the text is in the language."""
        for character in text:
            term = self.after(term, ord(character))
        return term.empty

    def is_empty(self, term: Term) -> bool:
        """Whether no text is in it."""
        return not any(state.empty for state in self._states(term))

    def _states(self, term: Term) -> Iterator[Term]:
        seen, waiting = {term: None}, [term]
        while waiting:
            state = waiting.pop()
            yield state
            for _, _, following in self._edges(state):
                if following not in seen:
                    if len(seen) >= MAX_STATES:
                        raise TooLarge
                    seen[following] = None
                    waiting.append(following)

    def regex(self, term: Term) -> str:
        """An anchored regular expression, of Rust's syntax, for what is in it. term is not
        empty."""
        states = list(self._states(term))
        edges = {state: self._edges(state) for state in states}
        group = _merge_equal(states, edges)
        joined: dict[tuple[int, int], str] = {}
        for state in states:
            by_target: dict[int, list[tuple[int, int]]] = {}
            for low, high, target in edges[state]:
                by_target.setdefault(group[target], []).append((low, high))
            for target_group, ranges in by_target.items():
                joined[group[state], target_group] = written_class(merged(ranges))
        accepting = {group[state] for state in states if state.empty}
        return f"^(?:{_eliminated(joined, group[term], accepting, self._check_time)})$"

    def _edges(self, state: Term) -> list[tuple[int, int, Term]]:
        starts = sorted(self.cuts(state))
        ends = [start - 1 for start in starts[1:]] + [LAST]
        return [
            (low, high, self.after(state, low))
            for low, high in zip(starts, ends, strict=True)
            if not (low >= 0xD800 and high <= 0xDFFF)  # surrogates are no characters
        ]


def _flat(op: str, parts: Iterable[Term]) -> Iterator[Term]:
    for part in parts:
        if part.op == op:
            yield from part.args  # type: ignore[misc]
        else:
            yield part


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same characters, sorted and without overlap."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def complement(ranges: Ranges) -> Ranges:
    """All other characters."""
    found, start = [], 0
    for low, high in ranges:
        if low > start:
            found.append((start, low - 1))
        start = high + 1
    return tuple(found) + (((start, LAST),) if start <= LAST else ())


def _merge_equal(
    states: list[Term], edges: dict[Term, list[tuple[int, int, Term]]]
) -> dict[Term, int]:
    """A number for each state, the same for those that accept the same (Moore)."""
    group = {state: int(state.empty) for state in states}
    while True:
        keys: dict[tuple[object, ...], int] = {}
        finer = {}
        for state in states:
            following: list[tuple[int, int]] = []  # from this character on, to that group
            for low, _, target in edges[state]:
                if not following or following[-1][1] != group[target]:
                    following.append((low, group[target]))
            finer[state] = keys.setdefault((group[state], *following), len(keys))
        if len(keys) == len(set(group.values())):
            return finer
        group = finer


def written_class(ranges: Ranges) -> str:
    """A class of a regular expression with these characters."""
    parts = []
    for low, high in ranges:
        for start, end in ((low, min(high, 0xD7FF)), (max(low, 0xE000), high)):
            if start <= end:
                parts.append(_char(start) + (f"-{_char(end)}" if end > start else ""))
    if len(parts) == 1 and "-" not in parts[0]:
        return parts[0]
    return f"[{''.join(parts)}]" if parts else "[^\\x{0}-\\x{10FFFF}]"


def written_texts(texts: Iterable[str]) -> str:
    """An anchored regular expression for exactly these texts."""
    return f"^(?:{'|'.join(''.join(_char(ord(one)) for one in text) for text in texts)})$"


def written_except(texts: Iterable[str]) -> str:
    """An anchored regular expression for all but these texts, about as long as they are. Raises
    TooLarge."""
    tree: dict[str, Any] = {}
    for text in texts:
        if len(text) > _MAX_NESTED:
            raise TooLarge
        node = tree
        for character in text:
            node = node.setdefault(character, {})
        node[_END] = {}
    found = f"^{_except(tree)}$"
    if len(found) > MAX_REGEX_CHARS:
        raise TooLarge
    return found


def _except(node: dict[str, Any]) -> str:
    barred = merged((ord(one), ord(one)) for one in node if one != _END)
    ways = [written_class(complement(barred)) + written_class(((0, LAST),)) + "*"]
    ways += [_char(ord(one)) + _except(inner) for one, inner in node.items() if one != _END]
    return f"(?:{'|'.join(ways)})" + ("" if _END in node else "?")


def _char(code: int) -> str:
    return chr(code) if code < 128 and chr(code).isalnum() else f"\\x{{{code:X}}}"


def _eliminated(
    edges: dict[tuple[int, int], str],
    start: int,
    accepting: set[int],
    check_time: Callable[[], None],
) -> str:
    """State elimination: one expression for all ways from start to what is accepting."""
    first, last = -1, -2
    edges = {**edges, (first, start): "", **{(state, last): "" for state in accepting}}
    left = {state for pair in edges for state in pair} - {first, last}
    while left:
        check_time()
        incoming: dict[int, int] = dict.fromkeys(left, 0)
        outgoing: dict[int, int] = dict.fromkeys(left, 0)
        for (source, target), text in edges.items():
            if source != target:
                if source in left:
                    outgoing[source] += len(text) + 1
                if target in left:
                    incoming[target] += len(text) + 1
        state = min(left, key=lambda one: (incoming[one] * outgoing[one], one))
        left.remove(state)
        loop = edges.pop((state, state), None)
        repeated = "" if loop is None else f"(?:{loop})*"
        into = [(a, text) for (a, b), text in edges.items() if b == state]
        out = [(b, text) for (a, b), text in edges.items() if a == state]
        edges = {pair: text for pair, text in edges.items() if state not in pair}
        for a, before in into:
            for b, behind in out:
                way = before + repeated + behind
                known = edges.get((a, b))
                edges[a, b] = way if known is None else _either(known, way)
                if len(edges[a, b]) > MAX_REGEX_CHARS:
                    raise TooLarge
    return edges.get((first, last), "[^\\x{0}-\\x{10FFFF}]")


def _either(first: str, second: str) -> str:
    return f"(?:{first}|{second})" if first and second else f"(?:{first or second})?"
