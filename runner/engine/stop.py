"""Stop strings in streamed text: where generation ends, and what may be shown until then.

A stop string ends the text before its first character, wherever the borders of tokens are. Text
that may become a stop string is held back until it can not. The matcher is the automaton of Aho
and Corasick (1975): the cost is linear in the text, whatever the number of strings. It knows no
tokens.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(slots=True, eq=False)
class _State:
    """Text read so far whose last depth characters begin a stop string. match: the longest stop
    string that ends here."""

    depth: int
    match: str | None = None
    fallback: _State | None = None
    next: dict[str, _State] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Automaton:
    root: _State
    starts: re.Pattern[str]  # the first characters of all strings

    def advance(self, state: _State, character: str) -> _State:
        """The state after one character more."""
        while (after := state.next.get(character)) is None:
            if state.fallback is None:
                return self.root
            state = state.fallback
        return after


@lru_cache(maxsize=64)
def _compile(stops: tuple[str, ...]) -> _Automaton:
    root = _State(0)
    for stop in stops:
        state = root
        for character in stop:
            state = state.next.setdefault(character, _State(state.depth + 1))
        state.match = stop
    starts = re.compile("[" + "".join(re.escape(c) for c in sorted(root.next)) + "]")
    automaton = _Automaton(root, starts)
    for state, character, child in _breadth_first(root):
        above = state.fallback
        child.fallback = root if above is None else automaton.advance(above, character)
        child.match = child.match or child.fallback.match
    return automaton


def _breadth_first(root: _State) -> Iterator[tuple[_State, str, _State]]:
    queue = deque([root])
    while queue:
        state = queue.popleft()
        for character, child in state.next.items():
            yield state, character, child
            queue.append(child)


class StopMatcher:
    """The matcher of one text. The stop string that is complete first wins; of those complete at
    the same character, the longest."""

    __slots__ = ("_automaton", "_held", "_state", "matched")

    def __init__(self, stops: tuple[str, ...]) -> None:
        """stops: at least one, none of them empty."""
        self._automaton = _compile(stops)
        self._state = self._automaton.root
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The text that can be shown now. After a match, matched is set and the text ends."""
        start = 0
        if self._state is self._automaton.root:
            first = self._automaton.starts.search(text)
            if first is None:
                return text
            start = first.start()
        state, advance = self._state, self._automaton.advance
        for index in range(start, len(text)):
            state = advance(state, text[index])
            if state.match is not None:
                return self._stop_at(state.match, text[: index + 1])
        self._state = state
        return self._show(text, state.depth)

    def flush(self) -> str:
        """The end of the text without a match: what is held back."""
        held, self._held = self._held, ""
        self._state = self._automaton.root
        return held

    def _stop_at(self, stop: str, text: str) -> str:
        self.matched = stop
        shown = (self._held + text)[: -len(stop)]
        self._held = ""
        return shown

    def _show(self, text: str, hold: int) -> str:
        whole = self._held + text
        border = len(whole) - hold
        self._held = whole[border:]
        return whole[:border]
