"""Which tokens a piece of text is made of. A parser shows text later than its tokens arrive, and
not all of it, so that tokens wait here for their text."""

from __future__ import annotations

from collections.abc import Sequence

from runner.types import TokenLogprob


class PendingTokens:
    """Tokens that have no text yet, in order."""

    def __init__(self) -> None:
        self._waiting: list[TokenLogprob] = []
        self._rest = b""  # of the last token that was taken, not shown yet

    def add(self, tokens: Sequence[TokenLogprob]) -> None:
        """More tokens."""
        self._waiting += tokens

    def take(self, text: str) -> list[TokenLogprob]:
        """The tokens of the text that is shown next. Those before it, such as markers that no
        reader sees, are dropped; a token that two texts share belongs to the first one."""
        waiting, wanted = self._waiting, text.encode("utf-8", "replace")
        all_bytes = self._rest + b"".join(token.piece for token in waiting)
        start = all_bytes.find(wanted)
        if start < 0:  # half characters were replaced: all that has come is its
            self._waiting, self._rest = [], b""
            return waiting
        end, at = start + len(wanted), len(self._rest)
        found, taken = [], 0
        for token in waiting:
            if at >= end:
                break
            taken += 1
            at += len(token.piece)
            if at > start:
                found.append(token)
        self._waiting, self._rest = waiting[taken:], all_bytes[end:at]
        return found
