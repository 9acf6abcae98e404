"""What a chat template of either language is to those who use it. Knows no language."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from modelfile.errors import TemplateError
from modelfile.templates.publisher_defaults import default_values

_THINKING = re.compile(
    r"\b(?:enable_thinking|reasoning_content|reasoning_effort|thinking)\b|<think>"
)
_TOOLS = re.compile(r"\btools\b|[+~]\s*functions\b")
_ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a template has a place for. thinking_tags: the text before and after the thinking,
    where the template says so. tool_call_tags: what begins calls, and what ends them if anything
    does, where the template is in Go and says so. optional_generation_prompt: it can end where the
    last message ends."""

    tools: bool = False
    thinking: bool = False
    insert: bool = False
    thinking_tags: tuple[str, str] | None = None
    tool_call_tags: tuple[str, str | None] | None = None
    optional_generation_prompt: bool = False


def jinja_capabilities(source: str) -> Capabilities:
    """What a template in Jinja has a place for, by the words in it: it need not compile."""
    return Capabilities(
        tools=_TOOLS.search(source) is not None,
        thinking=_THINKING.search(source) is not None,
        optional_generation_prompt=True,
    )


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a prompt is made of; the fields are the arguments of ChatTemplate.render."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None
    add_generation_prompt: bool
    options: Mapping[str, Any]


class ChatTemplate(ABC):
    """A compiled template. default_names: see publisher_defaults."""

    capabilities: Capabilities
    default_names: tuple[str, ...] = ()

    @cached_property
    def keeps_system_turns(self) -> bool:
        """Whether a system message in the midst of a conversation is rendered there: tried with a
        short one."""
        roles = ("system", "user", "system", "assistant", "user")
        turns = [{"role": role, "content": f"probe{at}"} for at, role in enumerate(roles)]
        try:
            prompt = self.render(turns)
        except TemplateError:
            return False
        places = [prompt.find(turn["content"]) for turn in turns[1:]]
        return min(places) >= 0 and places == sorted(places)

    def defaults(self, tools: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
        """The options that its publisher gives it for a conversation with these tools."""
        return default_values(self.default_names, tools)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **options: Any,
    ) -> str:
        """The prompt of a conversation. messages: role, content and what else the template reads,
        as OpenAI has them; options: further variables, such as enable_thinking.

        Raises TemplateError: the template refuses the messages, is faulty, takes too much, or
        cannot leave the generation prompt out.
        """
        return self._render(Conversation(messages, tools, add_generation_prompt, options))

    @abstractmethod
    def _render(self, given: Conversation) -> str:
        """See render."""

    def fill(self, prompt: str, suffix: str, **options: Any) -> str:
        """The prompt for the text between prompt and suffix. Raises TemplateError."""
        raise TemplateError("the template does not support a suffix: it does not use .Suffix")


def refuse_dropped(messages: Sequence[Mapping[str, Any]], prompt: str) -> None:
    """Refuse a message of another role than the four that all templates know when its text is not
    in the prompt. Raises TemplateError."""
    for message in messages:
        role, content = str(message.get("role")), message.get("content")
        if role.lower() in _ROLES or not isinstance(content, str):
            continue
        if content.strip() not in prompt:
            raise TemplateError(
                f"the template has no place for the role {role[:40]!r}; use"
                f" {', '.join(_ROLES[:-1])} or {_ROLES[-1]}"
            )
