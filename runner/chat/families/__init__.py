"""One module for each model family: all that is known of how its answers are written.

A module has FAMILY, a runner.chat.family.Family; every table is derived from the modules in this
folder. The smallest one to copy is hermes.
"""

from __future__ import annotations

import pkgutil
from functools import lru_cache
from importlib import import_module
from typing import Final

from modelfile.templates.dialect import capabilities_of
from runner.chat.family import PASSTHROUGH, Family
from runner.chat.reasoning import REASONING_TAGS
from runner.chat.tools.argument_grammar import as_json
from runner.chat.tools.call_grammar import NAMED_CALL, CallGrammar
from runner.chat.tools.template_calls import TemplateCalls


def _families() -> tuple[Family, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found: list[Family] = [import_module(f"{__name__}.{name}").FAMILY for name in names]
    return tuple(sorted(found, key=lambda family: family.rank))


FAMILIES: Final = _families()
"""Where a template holds the markers of two, the one that is tried first."""
_BY_NAME: Final = {
    name: family for family in FAMILIES for name in (*family.names, *family.thinking_names)
}
PARSERS: Final = frozenset((PASSTHROUGH, *_BY_NAME))
"""The names that PARSER takes."""
_TAGS: Final = dict.fromkeys((*REASONING_TAGS, *(each.reasoning_tags for each in FAMILIES)))


def family_of(chat_template: str | None, name: str | None = None) -> Family | None:
    """The family that PARSER names, or whose markers stand in the template; None: unknown."""
    if name == PASSTHROUGH:
        return None
    if name in _BY_NAME:
        return _BY_NAME[name]
    if chat_template is None:
        return None
    known = next((family for family in FAMILIES if family.speaks(chat_template)), None)
    if known is None or known is _BY_NAME["json"]:
        return _derived(chat_template) or known
    return known


@lru_cache(maxsize=128)
def _derived(chat_template: str) -> Family | None:
    """The family of a template in Go that nobody knows, by the tags that it writes around calls. A
    bracket alone is no tag: calls without one are found in any answer."""
    tags = capabilities_of(chat_template).tool_call_tags
    if tags is None or tags[0] in ("[", "```", "```json"):
        return None
    grammar = CallGrammar(tags[:1], NAMED_CALL, as_json, begin="blank", single=True)
    return Family(
        special_tokens=tuple(filter(None, tags)),
        tool_parser=lambda tools: TemplateCalls(tools, *tags),
        call_grammar=grammar if '"name":' in chat_template else None,
    )


def reasoning_tags_of(chat_template: str | None, name: str | None = None) -> tuple[str, str] | None:
    """The tags around reasoning that a chat template knows, or the family that PARSER names; None
    when neither knows any. The end tag counts: many templates only write that, to cut old
    reasoning off."""
    found = next((tags for tags in _TAGS if tags[1] in (chat_template or "")), None)
    family = _BY_NAME.get(name or "")
    if found is None and family is not None and name in family.thinking_names:
        return family.reasoning_tags
    return found
