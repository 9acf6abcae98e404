"""Where long work beside the engine's steps lets others have their turn.

Work that takes long calls pause between its parts. What that does is the business of whoever runs
it (runner.worker.turns); on a thread of which nobody said anything, it does nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_thread = threading.local()


def pause() -> None:
    """Let others go on. Raises what ends the work when nobody waits for it any more."""
    action: Callable[[], None] | None = getattr(_thread, "action", None)
    if action is not None:
        action()


def on_pause(action: Callable[[], None] | None) -> None:
    """What pause does on this thread from now on; None: nothing."""
    _thread.action = action
