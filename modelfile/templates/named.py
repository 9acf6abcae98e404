"""Templates of which a model has several by name: one for conversations with tools, tool_use.

Hugging Face keeps them in tokenizer_config.json as a list of {"name", "template"}, GGUF under
tokenizer.chat_template and tokenizer.chat_template.<name>.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from modelfile.errors import TemplateError
from modelfile.templates.chat_template import ChatTemplate, Conversation
from modelfile.templates.dialect import JINJA, compile_template

DEFAULT: Final = "default"
TOOL_USE: Final = "tool_use"


def named_sources(value: Any) -> dict[str, str]:
    """The sources of chat_template as found in tokenizer_config.json: a text, a list of {"name",
    "template"} or an object of name to text. Raises TemplateError."""
    if isinstance(value, str):
        return {DEFAULT: value}
    if isinstance(value, list):
        pairs = [
            (item.get("name"), item.get("template")) if isinstance(item, Mapping) else (None, None)
            for item in value
        ]
    elif isinstance(value, Mapping):
        pairs = list(value.items())
    else:
        pairs = [(None, None)]
    if not all(isinstance(name, str) and isinstance(text, str) for name, text in pairs):
        raise TemplateError("chat_template is neither a text nor a list of name and template")
    return {str(name): str(text) for name, text in pairs}


class NamedTemplates(ChatTemplate):
    """Several templates, of which tool_use is taken when there are tools, default otherwise."""

    def __init__(
        self, sources: Mapping[str, str], bos: str | None = None, eos: str | None = None
    ) -> None:
        """Compile those of sources that can be chosen. Raises TemplateError."""
        if DEFAULT not in sources and TOOL_USE not in sources:
            names = ", ".join(sorted(sources)[:10]) or "none"
            raise TemplateError(f"no template is named default or tool_use; the file has {names}")
        self._by_name = {
            name: compile_template(sources[name], bos, eos, JINJA)
            for name in (DEFAULT, TOOL_USE)
            if name in sources
        }
        templates = self._by_name.values()
        self.default_names = tuple({name for each in templates for name in each.default_names})
        found = [template.capabilities for template in templates]
        self.capabilities = replace(
            found[0],
            tools=any(each.tools for each in found),
            thinking=any(each.thinking for each in found),
        )

    def _render(self, given: Conversation) -> str:
        """See ChatTemplate."""
        chosen: ChatTemplate | None = self._by_name.get(TOOL_USE) if given.tools else None
        chosen = chosen or self._by_name.get(DEFAULT)
        if chosen is None:
            raise TemplateError(
                "the model has a template for conversations with tools only; set a TEMPLATE"
            )
        return chosen._render(given)


def compile_file(
    text: str, bos: str | None = None, eos: str | None = None, engine: str | None = None
) -> ChatTemplate:
    """Compile what a file holds: a template, or JSON with named ones, such as
    tokenizer_config.json. Raises TemplateError."""
    value = _json_of(text) if engine is None else None
    if isinstance(value, Mapping) and "chat_template" in value:
        value = value["chat_template"]
    if value is None:
        return compile_template(text, bos, eos, engine)
    sources = named_sources(value)
    if set(sources) == {DEFAULT}:
        return compile_template(sources[DEFAULT], bos, eos, JINJA)
    return NamedTemplates(sources, bos, eos)


def _json_of(text: str) -> Any:
    """The named templates in text; None when it is a template itself."""
    if not text.lstrip().startswith(("{\n", '{"', "{ ", "[")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_named = isinstance(value, Mapping) and "chat_template" in value
    return value if is_named or (isinstance(value, list) and value) else None
