"""Whether RENDERER and PARSER take a name: Ollama's, and those of hearth's own families.

Owns names only. What a parser does is written in runner.chat, what a renderer writes in
modelfile.templates.renderers.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from pathlib import Path
from typing import Final

from modelfile.errors import BuildError
from modelfile.templates.renderers import BUILT_IN

MAX_NAME_CHARACTERS = 100

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_PARSERS = Path(__file__).with_name("parsers.txt")

RENDERERS: Final = BUILT_IN
_NOT_BUILT_IN: Final = ("glm-ocr", "ornith")
"""Renderers of Ollama that no new model can have here: what they would write is not known."""


@cache
def parsers() -> frozenset[str]:
    """The names that PARSER takes. `make docs-reference` writes their file from
    runner.chat.families."""
    return frozenset(_PARSERS.read_text("ascii").split())


def check_name(instruction: str, name: str) -> None:
    """Refuse what is no name of a renderer or a parser; "" removes it. instruction: "renderer" or
    "parser". Raises BuildError."""
    if not name:
        return
    if len(name) > MAX_NAME_CHARACTERS or _NAME.fullmatch(name) is None:
        raise BuildError(
            f"{instruction.upper()} is {name[:60]!r}, expected a name such as qwen3-coder"
        )
    known = RENDERERS if instruction == "renderer" else parsers()
    if name in known:
        return
    if instruction == "renderer" and name in _NOT_BUILT_IN:
        raise BuildError(
            f"RENDERER {name} is not built in; leave it out to use the chat template in the model"
            " file, or set a TEMPLATE"
        )
    near = difflib.get_close_matches(name.lower(), sorted(known), 3, 0.5)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"expected one of {', '.join(sorted(known))}"
    )
    raise BuildError(f"unknown {instruction.upper()} {name!r}; {hint}")
