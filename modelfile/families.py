"""The names that RENDERER and PARSER take: Ollama's, and those of hearth's own families.

Owns the names only. What a parser does is written in runner.chat, what a renderer writes in
modelfile.templates.renderers.
"""

from __future__ import annotations

import difflib
from typing import Final

from modelfile.templates.renderers import BUILT_IN

_PARSERS: Final = """
    passthrough harmony qwen3 qwen3-thinking qwen3.5 qwen3.8 ornith qwen3-coder qwen3-vl-instruct
    qwen3-vl-thinking ministral mistral cogito deepseek3 deepseek3.1 deepseek3.2 olmo3 olmo3-think
    nemotron-3-nano nemotron-3.5-nano functiongemma gemma gemma4 gemma4-no-thinking glimmer glm-4.6
    glm-4.7 glm-ocr lfm2 lfm2-thinking laguna poolside-v1 cohere hermes kimi llama3 pythonic json
    minimax-m2 granite
"""
PARSERS: Final = frozenset(_PARSERS.split())
"""Ollama's, and beyond them mistral, gemma, hermes, kimi, llama3, pythonic, json and others."""

RENDERERS: Final = BUILT_IN | {"glm-ocr", "ornith"}
"""Those that are built in, and those of Ollama for which the model's own template is used."""


def unknown_name(instruction: str, name: str) -> str | None:
    """What is wrong with the name of a renderer or a parser, None when it is known. instruction:
    "renderer" or "parser"."""
    known = RENDERERS if instruction == "renderer" else PARSERS
    if name in known:
        return None
    near = difflib.get_close_matches(name.lower(), sorted(known), 3, 0.5)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"expected one of {', '.join(sorted(known))}"
    )
    return f"{instruction.upper()} {name[:60]!r} is not known; {hint}"
