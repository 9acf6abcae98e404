"""The variables that publishers of Jinja chat templates set by default.

A template that reads one of these names without checking whether it is defined is written for a
caller that always sets it. Knows no model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

_NAMES: Final = {
    # closes the thinking where this is false, as in R1-Distill, QwQ and Command R7B
    "enable_thinking": re.compile(r"\bnot\s+enable_thinking\b"),
    "date_string": re.compile(r"\bdate_string\b"),  # Llama 3.1 to 3.3
    "datetime": re.compile(r"[+~]\s*datetime\b"),  # Firefunction
    "functions": re.compile(r"[+~]\s*functions\b"),
}
_ASKS: Final = re.compile(r"\benable_thinking\s*(?:\bis\b|\||=)")
_DATES: Final = {"date_string": "%d %b %Y", "datetime": "%b %d %Y"}


def read_names(source: str) -> tuple[str, ...]:
    """The names that a template reads and that have a default."""
    found = (name for name, pattern in _NAMES.items() if pattern.search(source))
    return tuple(n for n in found if n != "enable_thinking" or _ASKS.search(source) is None)


def default_values(
    names: Collection[str], tools: Sequence[Mapping[str, Any]] | None
) -> dict[str, Any]:
    """Their values. tools: those of the conversation."""
    return {name: _value(name, tools or ()) for name in names}


def _value(name: str, tools: Sequence[Mapping[str, Any]]) -> Any:
    if name == "functions":
        functions = [tool.get("function", tool) for tool in tools]
        return json.dumps(functions, ensure_ascii=False, indent=4)
    return datetime.now().strftime(_DATES[name]) if name in _DATES else True
