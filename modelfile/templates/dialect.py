"""Which language a template is in: Go's text/template, as in Ollama's Modelfiles, or Jinja.

The rule: going through the text, the first construct that only one of the two has decides.
Jinja's are {% ... %} and {# ... #}. Go's are actions {{ ... }} that begin with a dot, a $, a
comment /* or one of if, range, with, define, template, block, end, else, break and continue.
Where there is none of them, the template is Go if it is a valid Go template, and Jinja otherwise.

So a comment at the beginning forces the language: {{/* */}} or {# #}. The engine argument, and
--engine of hearth render, force it from outside. The template in a model file is always Jinja.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from modelfile.errors import TemplateError
from modelfile.templates.chat_template import Capabilities, ChatTemplate, jinja_capabilities

GO: Final = "go"
JINJA: Final = "jinja"
_MARK = re.compile(r"\{\{|\{%|\{#")
_GO_ACTION = re.compile(
    r"\{\{(?:-\s)?\s*(?:\.|\$|/\*"
    r"|(?:if|range|with|define|template|block)[\s(]|(?:end|else|break|continue)[\s}])"
)


def engine_of(source: str) -> str:
    """GO or JINJA, by the rule above."""
    last = {"{{": source.rfind("}}"), "{%": source.rfind("%}"), "{#": source.rfind("#}")}
    at = 0
    while (mark := _MARK.search(source, at)) is not None:
        at = mark.end()
        closed = last[mark[0]] >= at
        if mark[0] != "{{":
            if closed:
                return JINJA
        elif _GO_ACTION.match(source, mark.start()):
            return GO
        elif closed:
            at = source.find("}}", at)
    return GO if _is_go(source) else JINJA


def _is_go(source: str) -> bool:
    from modelfile.templates.gochat import GoChatTemplate

    try:
        GoChatTemplate(source)
    except TemplateError:
        return False
    return True


def compile_template(
    source: str, bos: str | None = None, eos: str | None = None, engine: str | None = None
) -> ChatTemplate:
    """Compile a template. engine: GO or JINJA; None: engine_of says. bos, eos: the texts of these
    tokens, None where there is none. Raises TemplateError with the line."""
    if (engine or engine_of(source)) == GO:
        from modelfile.templates.gochat import GoChatTemplate

        return GoChatTemplate(source, bos, eos)
    from modelfile.templates.jinja import JinjaChatTemplate

    return JinjaChatTemplate(source, bos, eos)


@lru_cache(maxsize=128)
def capabilities_of(source: str, engine: str | None = None) -> Capabilities:
    """What the template has a place for; nothing when it cannot be compiled. Cheap enough for a
    list of models: Go templates are parsed once, Jinja's are searched for words."""
    if (engine or engine_of(source)) == JINJA:
        return jinja_capabilities(source)
    try:
        return compile_template(source, engine=GO).capabilities
    except TemplateError:
        return Capabilities()
