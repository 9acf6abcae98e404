"""Several templates of one model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from modelfile.errors import TemplateError
from modelfile.templates.named import NamedTemplates, compile_file, named_sources

TOOLS = [{"type": "function", "function": {"name": "f"}}]
BOTH = {"default": "plain {{ bos_token }}", "tool_use": "tools {{ tools[0].function.name }}"}


def test_tools_choose_the_template_for_them() -> None:
    templates = NamedTemplates(BOTH, "<s>")
    assert templates.render([]) == "plain <s>"
    assert templates.render([], TOOLS) == "tools f"
    assert templates.capabilities.tools


def test_the_default_serves_tools_where_there_is_no_other() -> None:
    assert NamedTemplates({"default": "d", "rag": "r"}).render([], TOOLS) == "d"


def test_what_cannot_be_chosen_is_told() -> None:
    with pytest.raises(TemplateError, match="named default or tool_use; the file has rag"):
        NamedTemplates({"rag": "r"})
    with pytest.raises(TemplateError, match="with tools only"):
        NamedTemplates({"tool_use": "t"}).render([])


def test_a_file_holds_a_template_or_names_them() -> None:
    listed = [{"name": name, "template": text} for name, text in BOTH.items()]
    for value in ({"chat_template": listed}, {"chat_template": BOTH}, listed):
        assert compile_file(json.dumps(value)).render([], TOOLS) == "tools f"
    assert compile_file(json.dumps({"chat_template": "one"})).render([]) == "one"
    assert compile_file("{{ bos_token }}!", "<s>").render([]) == "<s>!"
    assert compile_file('{"role": "{{ messages | length }}"}').render([]) == '{"role": "0"}'


@pytest.mark.parametrize("value", [3, None, ["x"], [{"name": "a"}], {"a": 1}])
def test_what_is_no_template_is_refused(value: Any) -> None:
    with pytest.raises(TemplateError, match="neither a text nor a list"):
        named_sources(value)
