"""Whether RENDERER and PARSER take a name: Ollama's, and those of hearth's own families.

Owns names only. What a parser does is written in runner.chat, what a renderer writes in
modelfile.templates.renderers.
"""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path
from typing import Final

from modelfile.templates.renderers import BUILT_IN

_PARSERS = Path(__file__).with_name("parsers.txt")

RENDERERS: Final = BUILT_IN | {"glm-ocr", "ornith"}
"""Those that are built in, and those of Ollama for which the model's own template is used."""


@cache
def parsers() -> frozenset[str]:
    """The names that PARSER takes. `make docs-reference` writes their file from
    runner.chat.families."""
    return frozenset(_PARSERS.read_text("ascii").split())


def unknown_name(instruction: str, name: str) -> str | None:
    """What is wrong with the name of a renderer or a parser, None when it is known. instruction:
    "renderer" or "parser"."""
    known = RENDERERS if instruction == "renderer" else parsers()
    if name in known:
        return None
    near = difflib.get_close_matches(name.lower(), sorted(known), 3, 0.5)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"expected one of {', '.join(sorted(known))}"
    )
    return f"{instruction.upper()} {name[:60]!r} is not known; {hint}"
