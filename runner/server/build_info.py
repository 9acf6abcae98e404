"""What build of hearth answers, in the form that llama.cpp's servers have: b and a version."""

from __future__ import annotations

import importlib.metadata
from functools import cache


@cache
def build_info() -> str:
    """system_fingerprint of OpenAI's answers, build_info of /props."""
    return f"b{importlib.metadata.version('hearth')}-hearth"
