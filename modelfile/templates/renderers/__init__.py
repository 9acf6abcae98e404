"""Built-in renderers: what RENDERER names, as chat templates in Jinja, one file for each format.

For models that come with the name of a renderer and no template of use: Ollama's library. Owns
which name has which file. Knows no model.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from typing import Final

_FILES: Final = {
    "qwen3": "qwen3",
    "qwen3-vl-instruct": "qwen3_instruct",
    "qwen3-vl-thinking": "qwen3_thinking",
    "qwen3-coder": "qwen3_coder",
    "deepseek3.1": "deepseek3_1",
    "olmo3": "olmo3",
    "functiongemma": "functiongemma",
    "lfm2": "lfm2",
    "lfm2-thinking": "lfm2",
    "chatml": "chatml",
}
_ONLY_PROMPT = re.compile(r"\s*(?:\{\{-?\s*\.(?:System|Prompt)\s*-?\}\}\s*)*")
BUILT_IN: Final = frozenset(_FILES)


@lru_cache(maxsize=32)
def renderer_source(name: str | None) -> str | None:
    """The chat template of a renderer, in Jinja; None when none is built in."""
    file = _FILES.get(name or "")
    if file is None:
        return None
    return files(__package__).joinpath(f"{file}.jinja").read_text("utf-8")


def template_in_use(
    renderer: str | None, template: str | None, of_file: str | None
) -> tuple[str | None, bool]:
    """The chat template that counts, and whether it is the model file's: the renderer's, then the
    bundle's, then the model file's. A bundle with a renderer that is not built in often has a
    template that is the prompt and nothing more; the model file's is better then."""
    built_in = renderer_source(renderer)
    if built_in is not None:
        return built_in, False
    if renderer is not None and of_file is not None and not _is_usable(template):
        return of_file, True
    return (template, False) if template is not None else (of_file, True)


def needs_template(renderer: str | None, template: str | None, of_file: str | None) -> bool:
    """Whether a model has a renderer that is not built in, and no template in its place."""
    missing = renderer is not None and renderer_source(renderer) is None
    return missing and of_file is None and not _is_usable(template)


def _is_usable(template: str | None) -> bool:
    return template is not None and _ONLY_PROMPT.fullmatch(template) is None
