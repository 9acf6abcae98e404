"""What a chat template says of its model: tools, thinking, filling in the middle.

Cheap enough for a list of models: Go templates are parsed once, Jinja's are searched for words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from modelfile.errors import TemplateError
from modelfile.templates.dialect import GO, engine_of

_THINKING = re.compile(
    r"\b(?:enable_thinking|reasoning_content|reasoning_effort|thinking)\b|<think>"
)
_TOOLS = re.compile(r"\btools\b")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a template has a place for. thinking_marks: the text before and after the thinking,
    where the template says so."""

    tools: bool = False
    thinking: bool = False
    insert: bool = False
    thinking_marks: tuple[str, str] | None = None


@lru_cache(maxsize=128)
def capabilities_of(source: str, engine: str | None = None) -> Capabilities:
    """What the template has a place for; nothing when it cannot be compiled."""
    if (engine or engine_of(source)) == GO:
        return _of_go(source)
    return Capabilities(tools=bool(_TOOLS.search(source)), thinking=bool(_THINKING.search(source)))


def _of_go(source: str) -> Capabilities:
    from modelfile.templates.gochat import GoChatTemplate

    try:
        template = GoChatTemplate(source)
    except TemplateError:
        return Capabilities()
    return Capabilities(
        tools=template.supports_tools,
        thinking=template.supports_thinking,
        insert=template.supports_insert,
        thinking_marks=template.thinking_marks,
    )
