"""Where a JSON value, or one of Python, ends that arrives in pieces: by its brackets."""

from __future__ import annotations

import re

_QUOTED = {mark: re.compile(rf"[{mark}\\]") for mark in "\"'"}
_BARE = re.compile(r"[\"'{}\[\]`]")


class JsonEnd:
    """Of one object or list. A backtick outside of strings ends it too: neither has one."""

    def __init__(self) -> None:
        self._depth = 0
        self._quote: str | None = None  # around the string that has begun
        self._escaped = False

    def feed(self, text: str) -> int | None:
        """The place in text where the value ends; None: not in text."""
        at = 0
        while True:
            if self._escaped and at < len(text):
                self._escaped, at = False, at + 1
            found = (_QUOTED[self._quote] if self._quote else _BARE).search(text, at)
            if found is None:
                return None
            at, mark = found.end(), found[0]
            if mark == "\\":
                self._escaped = True
            elif mark in _QUOTED:
                self._quote = None if self._quote else mark
            elif mark == "`":
                return found.start()
            else:
                self._depth += 1 if mark in "{[" else -1
                if self._depth <= 0:
                    return at
