"""Tool calls in the text of a model: one module for each family of notations.

A family is recognised by a marker in the model's chat template, or named by PARSER. Each module
has MARKERS, the markers; KEPT, the marks that are control tokens in some vocabularies and must
reach the parser; and parser(tools), which makes a fresh one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Protocol

from runner.chat.families import (
    cohere,
    deepseek,
    functiongemma,
    gemma,
    gemma4,
    glm,
    granite,
    hermes,
    kimi,
    lfm2,
    llama3,
    minimax,
    mistral,
    olmo3,
    plain_json,
    pythonic,
    qwen3_coder,
    tagged_json,
)
from runner.chat.tools import glimmer
from runner.chat.tools.call_stream import ToolCallDelta
from runner.chat.tools.calls import Tools, name_of
from runner.types import ToolCall

_IN_ORDER = (
    *(mistral, deepseek, kimi, cohere, minimax, glimmer, gemma4, functiongemma, lfm2, olmo3),
    *(granite, tagged_json),
    *(qwen3_coder, glm, hermes, pythonic, llama3, gemma, plain_json),
)
"""Where a template holds the markers of two, the one that is tried first."""

_BY_NAME = {
    "hermes": hermes,
    "qwen3": hermes,
    "qwen3-thinking": hermes,
    "qwen3-vl-instruct": hermes,
    "qwen3-vl-thinking": hermes,
    "qwen3-coder": qwen3_coder,
    "qwen3.5": qwen3_coder,
    "qwen3.8": qwen3_coder,
    "ornith": qwen3_coder,
    "nemotron-3-nano": qwen3_coder,
    "nemotron-3.5-nano": qwen3_coder,
    "ministral": mistral,
    "mistral": mistral,
    "cogito": deepseek,
    "deepseek3": deepseek,
    "deepseek3.1": deepseek,
    "deepseek3.2": minimax,
    "minimax-m2": minimax,
    "olmo3": olmo3,
    "olmo3-think": olmo3,
    "functiongemma": functiongemma,
    "gemma": gemma,
    "gemma4": gemma4,
    "gemma4-no-thinking": gemma4,
    "glimmer": glimmer,
    "glm-4.6": glm,
    "glm-4.7": glm,
    "glm-ocr": glm,
    "laguna": glm,
    "poolside-v1": glm,
    "lfm2": lfm2,
    "lfm2-thinking": lfm2,
    "cohere": cohere,
    "kimi": kimi,
    "granite": granite,
    "llama3": llama3,
    "pythonic": pythonic,
    "json": plain_json,
}
"""Families by the names that PARSER takes, apart from harmony and passthrough."""


PASSTHROUGH = "passthrough"
"""What PARSER says of a model whose answers are left as they are."""


class ToolParser(Protocol):
    """Takes a model's text apart, as it arrives."""

    def stream(self, names: Iterable[str]) -> None:
        """Show calls of the tools with these names as they are written, where the notation allows
        it: as pieces. Others come whole."""

    def feed(self, text: str) -> Sequence[str | ToolCall | ToolCallDelta]:
        """Content and calls that text completes; what may still become a call is held back."""

    def finish(self) -> Sequence[str | ToolCall | ToolCallDelta]:
        """What was held back, at the end of the text."""


def family_of(chat_template: str | None, name: str | None = None) -> ModuleType | None:
    """The family that PARSER names, or whose marker stands in the template; None: unknown."""
    if name == PASSTHROUGH:
        return None
    if name in _BY_NAME:
        return _BY_NAME[name]
    if chat_template is None:
        return None
    return next((family for family in _IN_ORDER if _speaks(family, chat_template)), None)


def _speaks(family: ModuleType, chat_template: str) -> bool:
    return any(marker in chat_template for marker in family.MARKERS)


def tool_parser_for(
    chat_template: str | None, tools: Tools = (), name: str | None = None, *, streams: bool = False
) -> ToolParser | None:
    """A fresh parser for models with this chat template; None when its notation is unknown.
    tools: those that were offered; some notations leave the types of arguments to them. streams:
    calls are shown as they are written."""
    family = family_of(chat_template, name)
    if family is None:
        return None
    parser: ToolParser = family.parser(tools)
    if streams:
        parser.stream(name for name in map(name_of, tools) if name is not None)
    return parser


def kept_marks(chat_template: str | None, name: str | None = None) -> tuple[str, ...]:
    """Control tokens whose text the parser needs."""
    family = family_of(chat_template, name)
    if family is None:
        return ()
    marks: tuple[str, ...] = family.KEPT
    return marks
