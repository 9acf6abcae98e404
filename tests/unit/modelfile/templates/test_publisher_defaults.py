"""Names that templates read without asking whether they are there."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from modelfile.templates.chat_template import jinja_capabilities
from modelfile.templates.jinja import JinjaChatTemplate

MESSAGES = [{"role": "user", "content": "hi"}]
CLOSES = "A<think>\n{% if not enable_thinking %}</think>{% endif %}"


def rendered(source: str, **options: Any) -> str:
    template = JinjaChatTemplate(source)
    return template.render(MESSAGES, **{**template.defaults(None), **options})


def test_thinking_is_closed_only_when_it_is_asked_for() -> None:
    assert rendered(CLOSES) == "A<think>\n"
    assert rendered(CLOSES, enable_thinking=True) == "A<think>\n"
    assert rendered(CLOSES, enable_thinking=False) == "A<think>\n</think>"


@pytest.mark.parametrize(
    "source",
    [
        "{% if enable_thinking %}on{% endif %}",
        "{% if enable_thinking is defined and not enable_thinking %}{% else %}{% endif %}",
        "{% set enable_thinking = enable_thinking | default(false) %}"
        "{% if not enable_thinking %}{% else %}on{% endif %}",
    ],
)
def test_a_template_with_a_default_of_its_own_keeps_it(source: str) -> None:
    assert rendered(source) == ""


def test_a_template_gets_the_date_of_today() -> None:
    llama = "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}"
    source = llama + "{{ date_string }}"
    assert datetime.strptime(rendered(source), "%d %b %Y").year >= 2026
    assert rendered(source, date_string="today") == "today"


def test_firefunction_gets_its_functions_as_text() -> None:
    source = "{% set s = 'F ' + functions %}{{ s + ' on ' + datetime }}"
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    template = JinjaChatTemplate(source)
    text = template.render(MESSAGES, [tool], **template.defaults([tool]))
    functions, _, date = text.rpartition(" on ")
    assert functions == 'F [\n    {\n        "name": "add",\n        "parameters": {}\n    }\n]'
    assert datetime.strptime(date, "%b %d %Y").year >= 2026
    assert rendered(source).startswith("F [] on ")
    assert jinja_capabilities(source).tools
    assert not jinja_capabilities("one of the functions").tools
