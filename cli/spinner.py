"""A sign of life on stderr while nothing can be shown yet, on terminals only."""

from __future__ import annotations

import sys
from itertools import cycle
from threading import Event, Thread
from types import TracebackType
from typing import Self

from cli.terminal import can_move, columns

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_DELAY_S = 0.2  # shorter waits need no sign
_FRAME_S = 0.1


class Spinner:
    """Turns from entering until stop, or leaving; leaves no trace on the screen."""

    def __init__(self, text: str = "") -> None:
        self._text = text
        self._ended = Event()
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        if can_move(sys.stderr):
            self._thread = Thread(target=self._turn, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it and clear its line; more than once does nothing."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def update(self, text: str) -> None:
        """Say something else beside it."""
        self._text = text

    def _turn(self) -> None:
        if self._ended.wait(_DELAY_S):
            return
        for frame in cycle(_FRAMES):
            line = f"{frame} {self._text}"[: columns() - 1]  # a wrapped line could not be cleared
            sys.stderr.write(f"\r{line}\x1b[K")
            sys.stderr.flush()
            if self._ended.wait(_FRAME_S):
                break
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
