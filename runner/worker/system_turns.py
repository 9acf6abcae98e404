"""System messages in the midst of a conversation, as coding agents have them, for templates without
a place for them there: those would refuse the conversation, leave them out, or gather them at its
beginning, so that each one changes all of the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modelfile.templates.chat_template import ChatTemplate
from runner.worker.template_messages import content_parts

_ROLES = ("system", "developer")


def with_system_turns(
    messages: Sequence[dict[str, Any]], template: ChatTemplate
) -> Sequence[dict[str, Any]]:
    """messages; where the template does not keep later system messages in their places, those at
    the beginning are one, and others the user's, as part of the message before or after them."""
    if not any(map(_is_system, messages[1:])) or template.keeps_system_turns:
        return messages
    placed: list[dict[str, Any]] = []
    joins = False
    for message in messages:
        system = _is_system(message)
        if system and placed and not _is_system(placed[-1]):
            message = {**message, "role": "user"}
        if (system or joins) and placed and placed[-1]["role"] == message["role"]:
            message = {**message, "content": _joined(placed.pop()["content"], message["content"])}
        joins = system and message["role"] == "user"
        placed.append(message)
    return placed


def _is_system(message: dict[str, Any]) -> bool:
    return message["role"] in _ROLES


def _joined(before: Any, content: Any) -> Any:
    """Contents, both of which are texts or lists of one part."""
    if isinstance(before, str):
        return f"{before}\n\n{content}"
    return content_parts(f"{before[0]['text']}\n\n{content[0]['text']}")
