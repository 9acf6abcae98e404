"""Chat templates: what transformers' templates rely on, and what is refused."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from modelfile.errors import TemplateError
from modelfile.templates.jinja import RESERVED, JinjaChatTemplate

USER = [{"role": "user", "content": "hi"}]


def render(source: str, **options: Any) -> str:
    return JinjaChatTemplate(source, "<s>", "</s>").render(USER, **options)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>hi</s>"),
        ("{{ messages[0]['role'] }}", "user"),
        ("{% if add_generation_prompt %}yes{% endif %}", "yes"),
        ("{{ tools is none }}", "True"),
        ("{{ missing }}|{{ missing is defined }}", "|False"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{{ {'b': 'ä<>&', 'a': [1, none]} | tojson }}", '{"b": "ä<>&", "a": [1, null]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}", '{"a": 2, "b": 1}'),
        ("{{ [1, 2] | tojson(indent=2) }}", "[\n  1,\n  2\n]"),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{{ 'ä' | tojson(ensure_ascii=true) }}", '"\\u00e4"'),
        ("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}"
         "{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}", "013"),
        ("{% generation %}{{ 1 + 1 }}{% endgeneration %}", "2"),
        ("{% set ns = namespace(n=0) %}{% for m in [1, 2] %}{% set ns.n = ns.n + m %}{% endfor %}"
         "{{ ns.n }}", "3"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(1) ~ f('a') }}", "[1][a]"),
        ("{{ 'a,b'.split(',') | join('-') }}{{ ' x '.strip() }}{{ 'abc'[1:] }}", "a-bxbc"),
        ("{{ '%s is %d' | format('a', 3) }}{{ '%05.1f' % 2.25 }}", "a is 3002.2"),
        ("{{ '{}-{x}'.format(1, x=2) }}", "1-2"),
        ("{{ messages | map(attribute='role') | list }}", "['user']"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ [3, 1, 2] | sort | first }}{{ [1, 2, 3] | sum }}", "16"),
        ("{% for a in [1, 2, 3] if a > 1 %}{{ loop.index }}{{ a }}{{ loop.last }}{% endfor %}",
         "12False23True"),
        ("{{ messages[::-1][0].content }}{{ (1, 2)[0] }}", "hi1"),
        ("{% set a, b = 1, 2 %}{{ b }}{{ a }}", "21"),
        ("{% for k, v in {'x': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "x1"),
        ("{% set t %}a{{ 1 }}{% endset %}{{ t | upper }}", "A1"),
        ("{% filter upper %}abc{% endfilter %}", "ABC"),
        ("{{ [1] + [2] }}{{ 'a' * 3 }}{{ 2 ** 10 }}{{ 7 % 4 }}", "[1, 2]aaa10243"),
        ("{{ none }}{{ 1.5 }}{{ true }}", "None1.5True"),
    ],
)  # fmt: skip
def test_templates_render_as_in_transformers(source: str, expected: str) -> None:
    assert render(source) == expected


def test_options_and_tools_reach_the_template() -> None:
    template = JinjaChatTemplate("{{ enable_thinking }}{{ tools[0].function.name }}")
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert template.render(USER, tools, enable_thinking=False) == "Falsef"
    assert template.capabilities.tools
    assert not JinjaChatTemplate("{{ messages }}").capabilities.tools


def test_tokens_that_the_model_lacks_are_undefined() -> None:
    assert JinjaChatTemplate("[{{ bos_token }}]").render(USER) == "[]"


def test_the_date_is_written_as_asked() -> None:
    assert len(render("{{ strftime_now('%d %b %Y') }}").split()) == 3


@pytest.mark.parametrize("name", [n for n in RESERVED if n not in ("messages", "tools")])
def test_an_option_does_not_replace_what_hearth_sets(name: str) -> None:
    if name == "add_generation_prompt":
        return
    with pytest.raises(TemplateError, match=f"the template option '{name}' is set by hearth"):
        render("x", **{name: "evil"})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% if %}", "the template, line 1: "),
        ("a\nb{% endfor %}", "the template, line 2: "),
        ("{{ x", "the template, line 1: "),
        ("{% include 'x' %}", "the template failed: "),
        ("{{ messages | nothing }}", "No filter named 'nothing'"),
        ("{{ raise_exception('roles must alternate') }}", "refuses these messages: roles must"),
        ("{{ missing.x }}", "'missing' is undefined"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ tools | tojson }}{{ missing | tojson }}", "TypeError"),
        ("{{ messages.append(1) }}", "is unsafe"),
        ("x" * (64 * 1024 + 1), "has 65537 bytes, at most 65536"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nests too deeply"),
        ("{{ " + "[" * 150 + "]" * 150 + " }}", "nests too deeply|cannot be compiled"),
        ("{% if 1 %}" * 300 + "{% endif %}" * 300, "cannot be compiled|nests too deeply"),
    ],
    ids=range(14),
)
def test_a_faulty_template_is_told(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        render(source)


def test_one_template_may_be_rendered_by_several_threads() -> None:
    template = JinjaChatTemplate("{% for i in range(200) %}{{ n }}{% endfor %}")
    results: dict[int, str] = {}

    def work(number: int) -> None:
        results[number] = template.render(USER, n=number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: str(number) * 200 for number in range(8)}


def test_a_long_conversation_is_no_bomb() -> None:
    messages = [{"role": "user", "content": "word " * 200} for _ in range(3000)]
    source = (
        "{% set ns = namespace(text='') %}{% for m in messages %}<|{{ m.role }}|>"
        "{{ m.content.split('</think>')[-1].lstrip('\\n') | trim }}{% endfor %}"
    )
    assert len(JinjaChatTemplate(source).render(messages)) > 3_000_000
