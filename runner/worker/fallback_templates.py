"""What stands in for a chat template that is missing or broken."""

from __future__ import annotations

from modelfile.errors import ModelfileError
from modelfile.templates.chat_template import Capabilities, ChatTemplate, Conversation
from runner.errors import ModelInvalid, Unsupported


class PlainTemplate(ChatTemplate):
    """The prompt for a base model, which has no chat template: the user's text as it stands, after
    the system text and a blank line. It has no form for turns, and an invented one would lead the
    model astray."""

    capabilities = Capabilities(optional_generation_prompt=True)

    def _render(self, given: Conversation) -> str:
        """See ChatTemplate. Raises Unsupported for anything but one message of the user."""
        turns = [message["role"] for message in given.messages if message["role"] != "system"]
        if turns != ["user"]:
            raise Unsupported(
                "this is a base model without a chat template, which continues one text: send one"
                f" user message (this conversation has {', '.join(turns[:5]) or 'none'}), or create"
                " the model with a TEMPLATE",
                param="messages",
            )
        return "\n\n".join(str(message["content"]) for message in given.messages)


class BrokenTemplate(ChatTemplate):
    """Stands for a chat template that cannot be compiled: the model still completes text."""

    def __init__(self, fault: ModelfileError) -> None:
        self._fault = fault
        self.capabilities = Capabilities()

    def _render(self, given: Conversation) -> str:
        """Raises ModelInvalid."""
        raise ModelInvalid(
            f"the model's chat template is unusable: {self._fault}; set another one with "
            "TEMPLATE in a Modelfile"
        )
