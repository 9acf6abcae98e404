"""Tool calls in the text of a model: one module for each family of notations.

A family is recognised by a marker in the model's chat template, or named by PARSER. Each module
has MARKER, the marker; KEPT, the marks that are control tokens in some vocabularies and must
reach the parser; and parser(tools), which makes a fresh one.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Protocol

from runner.chat.tools import (
    cohere,
    deepseek,
    glm,
    hermes,
    kimi,
    llama3,
    mistral,
    qwen3_coder,
)
from runner.chat.tools.calls import Tools
from runner.types import ToolCall

_IN_ORDER = (mistral, deepseek, kimi, cohere, qwen3_coder, glm, hermes, llama3)
"""Where a template holds the markers of two, the one that is tried first."""

_BY_NAME = {
    "qwen3": hermes,
    "qwen3-thinking": hermes,
    "qwen3-vl-instruct": hermes,
    "qwen3-vl-thinking": hermes,
    "olmo3": hermes,
    "qwen3-coder": qwen3_coder,
    "qwen3.5": qwen3_coder,
    "ministral": mistral,
    "deepseek3": deepseek,
    "glm-4.7": glm,
    "cohere": cohere,
}
"""Families by the names that PARSER takes in Ollama's Modelfiles."""


PASSTHROUGH = "passthrough"
"""What PARSER says of a model whose answers are left as they are."""


class ToolParser(Protocol):
    """Takes a model's text apart, as it arrives."""

    def feed(self, text: str) -> Sequence[str | ToolCall]:
        """Content and calls that text completes; what may still become a call is held back."""

    def finish(self) -> Sequence[str | ToolCall]:
        """What was held back, at the end of the text."""


def family_of(chat_template: str | None, name: str | None = None) -> ModuleType | None:
    """The family that PARSER names, or whose marker stands in the template; None: unknown."""
    if name == PASSTHROUGH:
        return None
    if name in _BY_NAME:
        return _BY_NAME[name]
    if chat_template is None:
        return None
    return next((family for family in _IN_ORDER if family.MARKER in chat_template), None)


def parser_for(
    chat_template: str | None, tools: Tools = (), name: str | None = None
) -> ToolParser | None:
    """A fresh parser for models with this chat template; None when its notation is unknown.
    tools: those that were offered; some notations leave the types of arguments to them."""
    family = family_of(chat_template, name)
    return None if family is None else family.parser(tools)


def kept_marks(chat_template: str | None, name: str | None = None) -> tuple[str, ...]:
    """Control tokens whose text the parser needs."""
    family = family_of(chat_template, name)
    return () if family is None else family.KEPT
