"""How old things are, whatever is done to the machine's date meanwhile.

What goes by its age must not go because somebody set the date, and a clock without a battery
jumps by years.
"""

from __future__ import annotations

import time


def uptime_s() -> float:
    """Seconds since the machine was started, those in which it slept included where the system
    tells; nobody can set it."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


_STARTED_S = time.time() - uptime_s()


def steady_now() -> float:
    """Seconds since 1970 by the date as it was when this process began: a date that is set
    meanwhile makes nothing older."""
    return _STARTED_S + uptime_s()
