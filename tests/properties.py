"""How many examples the properties of the tests are tried with."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

SCALE = int(os.environ.get("EXAMPLES", "1"))  # make thorough has more


def examples(count: int, **more: Any) -> settings:
    """That many of them for each unit of EXAMPLES. more: see hypothesis.settings."""
    return settings(max_examples=count * SCALE, **more)
