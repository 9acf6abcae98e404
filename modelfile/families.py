"""The names that RENDERER and PARSER take: Ollama's, and those of hearth's own families.

Owns the names only. What a parser does is written in runner.chat, what a renderer writes in
modelfile.templates.renderers.
"""

from __future__ import annotations

import difflib
from typing import Final

_PARSERS: Final = """
    passthrough harmony qwen3 qwen3-thinking qwen3.5 qwen3.8 ornith qwen3-coder qwen3-vl-instruct
    qwen3-vl-thinking ministral mistral cogito deepseek3 deepseek3.1 deepseek3.2 olmo3 olmo3-think
    nemotron-3-nano nemotron-3.5-nano functiongemma gemma gemma4 gemma4-no-thinking glimmer glm-4.6
    glm-4.7 glm-ocr lfm2 lfm2-thinking laguna poolside-v1 cohere hermes kimi llama3 pythonic json
    minimax-m2 granite
"""
PARSERS: Final = frozenset(_PARSERS.split())
"""Ollama's, and beyond them mistral, gemma, hermes, kimi, llama3, pythonic, json and others."""

_RENDERERS: Final = """
    qwen3-coder qwen3-vl-instruct qwen3-vl-thinking qwen3.5 qwen3.8 ornith cogito deepseek3.1 olmo3
    olmo3.1 olmo3-think olmo3-32b-think nemotron-3-nano nemotron-3.5-nano gemma4 gemma4-small
    gemma4-large functiongemma glm-4.6 glm-4.7 glm-ocr lfm2 lfm2-thinking laguna poolside-v1 cohere
    glimmer harmony qwen3 chatml
"""
RENDERERS: Final = frozenset(_RENDERERS.split())
"""Ollama's, and beyond them harmony, qwen3 and chatml."""


def unknown_name(instruction: str, name: str) -> str | None:
    """What is wrong with the name of a renderer or a parser, None when it is known. instruction:
    "renderer" or "parser"."""
    known = RENDERERS if instruction == "renderer" else PARSERS
    if name in known:
        return None
    near = difflib.get_close_matches(name.lower(), sorted(known), 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(sorted(known))}"
    return f"{instruction.upper()} {name[:60]!r} is not known; {hint}"
