"""Built-in renderers: what RENDERER names, as chat templates in Jinja, one file for each format,
called as RENDERER names it.

For models that come with the name of a renderer and no template of use: Ollama's library. Owns
the further names. Knows no model.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from typing import Final

_FOLDER: Final = files(__package__)
_ALIASES: Final = {
    "gemma4-small": "gemma4",
    "gemma4-large": "gemma4",
    "lfm2-thinking": "lfm2",
    "nemotron-3.5-nano": "nemotron-3-nano",
    "olmo3.1": "olmo3",
    "olmo3-32b-think": "olmo3-think",
    "qwen3.8": "qwen3.5",
}
"""Further names of a file."""
_OLMO: Final = (
    "You are Olmo, a helpful AI assistant built by Ai2. Your date cutoff is December 2024, and "
    "your model weights are available at https://huggingface.co/allenai."
)
_SETTINGS: Final = {
    "gemma4-large": "closes_thought = true",
    "lfm2-thinking": "keep_past_thinking = keep_past_thinking | default(thinking)",
    "nemotron-3-nano": "thought_end, trims = '\\n</think>\\n', true",
    "nemotron-3.5-nano": "thought_end, trims = '</think>', false",
    "olmo3.1": f"introduction = '{_OLMO} '",
    "olmo3-think": f"introduction = '{_OLMO}'",
    "olmo3-32b-think": "introduction = 'You are a helpful AI assistant.'",
    "qwen3.8": "has_efforts = true",
}
"""What one file leaves open for several names, set in Jinja before its text."""
_ONLY_PROMPT = re.compile(r"\s*(?:\{\{-?\s*\.(?:System|Prompt)\s*-?\}\}\s*)*")
_FILES: Final = {
    file.name.removesuffix(".jinja") for file in _FOLDER.iterdir() if file.name.endswith(".jinja")
}
BUILT_IN: Final = frozenset((*_FILES, *_ALIASES))


@lru_cache(maxsize=32)
def renderer_source(name: str | None) -> str | None:
    """The chat template of a renderer, in Jinja; None when none is built in."""
    if name is None or name not in BUILT_IN:
        return None
    source = _FOLDER.joinpath(f"{_ALIASES.get(name, name)}.jinja").read_text("utf-8")
    settings = _SETTINGS.get(name)
    return source if settings is None else f"{{%- set {settings} %}}\n{source}"


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
