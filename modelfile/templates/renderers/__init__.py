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
    "chatml": "chatml",
    "cogito": "cogito",
    "cohere": "cohere",
    "deepseek3.1": "deepseek3_1",
    "functiongemma": "functiongemma",
    "gemma4": "gemma4",
    "gemma4-small": "gemma4",
    "gemma4-large": "gemma4",
    "glimmer": "glimmer",
    "glm-4.6": "glm_4_6",
    "glm-4.7": "glm_4_7",
    "harmony": "harmony",
    "laguna": "laguna",
    "lfm2": "lfm2",
    "lfm2-thinking": "lfm2",
    "nemotron-3-nano": "nemotron_3",
    "nemotron-3.5-nano": "nemotron_3",
    "olmo3": "olmo3",
    "olmo3.1": "olmo3",
    "olmo3-think": "olmo3_think",
    "olmo3-32b-think": "olmo3_think",
    "poolside-v1": "poolside_v1",
    "qwen3": "qwen3",
    "qwen3-coder": "qwen3_coder",
    "qwen3-vl-instruct": "qwen3_instruct",
    "qwen3-vl-thinking": "qwen3_thinking",
    "qwen3.5": "qwen3_5",
    "qwen3.8": "qwen3_5",
}
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
BUILT_IN: Final = frozenset(_FILES)


@lru_cache(maxsize=32)
def renderer_source(name: str | None) -> str | None:
    """The chat template of a renderer, in Jinja; None when none is built in."""
    file = _FILES.get(name or "")
    if file is None:
        return None
    source = files(__package__).joinpath(f"{file}.jinja").read_text("utf-8")
    settings = _SETTINGS.get(name or "")
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
