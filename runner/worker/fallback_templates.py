"""What stands in for a chat template that is missing or broken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modelfile.errors import ModelfileError
from modelfile.templates.chat_template import Capabilities, ChatTemplate
from runner.errors import ModelInvalid


class PlainTemplate(ChatTemplate):
    """The prompt for a model without a chat template: "User: ...", "Assistant: ...", one blank
    line between turns, system text first and without a label. Tools are not shown."""

    capabilities = Capabilities(optional_generation_prompt=True)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **options: Any,
    ) -> str:
        """See ChatTemplate."""
        turns = [_plain_turn(message) for message in messages]
        return "\n\n".join(turns + ["Assistant:"] * add_generation_prompt)


class BrokenTemplate(ChatTemplate):
    """Stands for a chat template that cannot be compiled: the model still completes text."""

    def __init__(self, fault: ModelfileError) -> None:
        self._fault = fault
        self.capabilities = Capabilities()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **options: Any,
    ) -> str:
        """Raises ModelInvalid."""
        raise ModelInvalid(
            f"the model's chat template is unusable: {self._fault}; set another one with "
            "TEMPLATE in a Modelfile"
        )


def _plain_turn(message: Mapping[str, Any]) -> str:
    role, content = str(message["role"]), str(message["content"])
    return content if role == "system" else f"{role.capitalize()}: {content}"
