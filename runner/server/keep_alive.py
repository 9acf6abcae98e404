"""keep_alive: how long a model stays loaded after a request."""

from __future__ import annotations

import math
import reprlib
from typing import Any

from runner.errors import InvalidRequest
from runner.setting_values import parse_duration

_MAX_S = 1e9  # below it every timer works
_MAX_CHARS = 100


def keep_alive_s(value: Any) -> float | None:
    """Seconds of a keep_alive: a number of seconds or a duration such as "5m"; negative means
    for ever (inf). None: not given. Raises InvalidRequest."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < 0:
            return math.inf
        if value <= _MAX_S:
            return float(value)
    elif isinstance(value, str) and len(value) <= _MAX_CHARS:
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            raise InvalidRequest(
                f"keep_alive={value[:40]!r}: {error}", param="keep_alive"
            ) from None
        return math.inf if seconds is None else seconds
    raise InvalidRequest(
        f'keep_alive must be seconds or a duration such as "5m" (got {reprlib.repr(value)})',
        param="keep_alive",
    )
