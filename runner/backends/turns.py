"""Where long work beside the engine's steps lets others have their turn.

Work that takes long calls pause between its parts. What that does is the business of whoever runs
it (runner.worker.turns); on a thread of which nobody said anything, it does nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")
_ITEMS_A_TURN: Final = 1 << 12
_thread = threading.local()


def pause() -> None:
    """Let others go on. Raises what ends the work when nobody waits for it any more."""
    action: Callable[[], None] | None = getattr(_thread, "action", None)
    if action is not None:
        action()


def in_turns(items: Iterable[T]) -> Iterator[T]:
    """items, with a pause before every few thousand of them."""
    for number, item in enumerate(items):
        if number % _ITEMS_A_TURN == 0:
            pause()
        yield item


def on_pause(action: Callable[[], None] | None) -> None:
    """What pause does on this thread from now on; None: nothing."""
    _thread.action = action
