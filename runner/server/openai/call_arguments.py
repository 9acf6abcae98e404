"""The arguments of a tool call, which are a JSON object written as a text."""

from __future__ import annotations

import json
from typing import Any


def read_arguments(text: str) -> dict[str, Any] | None:
    """The object, an empty one for no text; None when it is none."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
