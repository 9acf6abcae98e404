"""Tool calls in the text of a model: one module for each family of notations.

A family is recognised by a marker in the model's chat template.
"""

from __future__ import annotations

from typing import Protocol

from runner.chat.tools import hermes
from runner.types import ToolCall


class ToolParser(Protocol):
    """Takes a model's text apart, as it arrives."""

    def feed(self, text: str) -> list[str | ToolCall]:
        """Content and calls that text completes; what may still become a call is held back."""

    def finish(self) -> list[str | ToolCall]:
        """What was held back, at the end of the text."""


def parser_for(chat_template: str | None) -> ToolParser | None:
    """A fresh parser for models with this chat template; None when its notation is unknown."""
    if chat_template is not None and hermes.MARKER in chat_template:
        return hermes.HermesParser()
    return None
