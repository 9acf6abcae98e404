"""Conversations through templates in Go, by Ollama's rules."""

from __future__ import annotations

from typing import Any

import pytest

from modelfile.errors import TemplateError
from modelfile.templates.chat_template import Capabilities
from modelfile.templates.gochat import GoChatTemplate


def turn(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


TALK = [
    turn("system", "S"),
    turn("user", "U1"),
    turn("assistant", "A1"),
    turn("user", "U2"),
]
MESSAGES = "{{ range .Messages }}[{{ .Role }}:{{ .Content }}]{{ end }}"
LEGACY = "{{ if .System }}<s>{{ .System }}{{ end }}<u>{{ .Prompt }}<a>{{ .Response }}<end>"
TOOL = {
    "type": "function",
    "function": {
        "name": "get",
        "description": "Get <it>",
        "parameters": {
            "type": "object",
            "required": ["b"],
            "properties": {
                "b": {"type": "string", "description": "B"},
                "a": {"type": ["integer", "null"], "enum": [1, "x"]},
            },
        },
    },
}


def render(source: str, messages: list[dict[str, Any]] = TALK, **options: Any) -> str:
    return GoChatTemplate(source).render(messages, **options)


def test_messages_are_rendered_in_order() -> None:
    assert render(MESSAGES) == "[system:S][user:U1][assistant:A1][user:U2]"


def test_messages_of_one_role_in_a_row_are_one_but_those_of_tools() -> None:
    messages = [turn("user", "a"), turn("USER", "b"), turn("tool", "c"), turn("tool", "d")]
    assert render(MESSAGES, messages) == "[user:a\n\nb][tool:c][tool:d]"


def test_the_given_messages_stay_as_they_are() -> None:
    messages = [turn("user", "a"), turn("user", "b")]
    render(MESSAGES, messages)
    assert messages == [turn("user", "a"), turn("user", "b")]


def test_all_system_messages_are_in_system() -> None:
    messages = [turn("system", "a"), turn("user", "x"), turn("system", "b")]
    assert render("{{ .System }}{{ range .Messages }}{{ end }}", messages) == "a\n\nb"


def test_a_template_without_messages_is_rendered_turn_by_turn_up_to_the_last_response() -> None:
    assert render(LEGACY) == "<s>S<u>U1<a>A1<end><u>U2<a>"


def test_a_last_answer_is_continued() -> None:
    assert render(LEGACY, [turn("user", "U"), turn("assistant", "A")]) == "<u>U<a>A"


def test_a_response_is_appended_to_a_template_that_reads_none() -> None:
    assert render("{{ .System }} {{ .Prompt }} ") == "S U1 A1 U2 "
    assert render("x", [turn("user", "U"), turn("assistant", "A"), turn("user", "V")]) == "xAx"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ if .Prompt }}{{ .Prompt }}{{ .Response }}!{{ else }}E{{ end }}?", "P"),
        ('{{ .Prompt }}{{ printf "%s%s" .Response .System }}', "P%!s(MISSING)"),
        ('{{ .Prompt }}{{ .Response | printf "%s" }}!', "P"),
        ("{{ .Prompt }}{{ range .Missing }}{{ .Response }}{{ end }}!", "P"),
    ],
)
def test_what_follows_the_response_is_left_out(source: str, expected: str) -> None:
    assert render(source, [turn("user", "P")]) == expected


def test_tools_are_json_with_sorted_parameters() -> None:
    source = "{{ range .Messages }}{{ end }}{{ range .Tools }}{{ json .Function }}{{ end }}"
    assert GoChatTemplate(source).render([], [TOOL]) == (
        '{"name":"get","description":"Get \\u003cit\\u003e","parameters":{"type":"object",'
        '"required":["b"],"properties":{"a":{"type":["integer","null"],"enum":[1,"x"]},'
        '"b":{"type":"string","description":"B"}}}}'
    )
    printed = source.replace("json .Function", ".Function")
    assert GoChatTemplate(printed).render([], [TOOL]) == GoChatTemplate(source).render([], [TOOL])
    whole = GoChatTemplate("{{ .Tools }}{{ range .Messages }}{{ end }}")
    assert whole.render([], [TOOL]).startswith('[{"type":"function","function":{"name":"get"')
    assert whole.render([]) == "null"


def test_parameters_have_types_in_typescript() -> None:
    source = (
        "{{ range .Messages }}{{ end }}{{ range .Tools }}"
        "{{ range $name, $p := .Function.Parameters.Properties }}"
        "{{ $name }}: {{ toTypeScriptType $p }}|{{ $p.ToTypeScriptType }}|{{ $p.Type }};"
        "{{ end }}{{ end }}{{ toTypeScriptType 1 }}"
    )
    assert GoChatTemplate(source).render([], [TOOL]) == (
        "a: number | null|number | null|[integer null];b: string|string|string;any"
    )


def test_calls_print_their_arguments_as_json_with_sorted_keys() -> None:
    call = {"function": {"name": "f", "arguments": {"b": 1, "a": [True, None, 2.5]}}}
    messages = [turn("assistant", None, tool_calls=[call], reasoning_content="hm")]
    source = (
        "{{ range .Messages }}{{ .Thinking }}{{ range .ToolCalls }}{{ .Function.Name }}"
        "{{ .Function.Arguments }}{{ range $k, $v := .Function.Arguments }}{{ $k }}={{ $v }} "
        "{{ end }}{{ end }}{{ end }}"
    )
    assert render(source, messages) == 'hmf{"a":[true,null,2.5],"b":1}a=[true <nil> 2.5] b=1 '


def test_a_result_has_the_name_of_the_tool_that_was_called() -> None:
    call = {"id": "c1", "function": {"name": "f", "arguments": {}}}
    messages = [
        turn("assistant", "", tool_calls=[call]),
        turn("tool", "x", tool_call_id="c1"),
        turn("tool", "y", tool_call_id="c2"),
        turn("tool", "z", tool_call_id="c1", name="g"),
    ]
    source = "{{ range .Messages }}{{ .ToolName }}{{ .Content }},{{ end }}"
    assert render(source, messages) == ",fx,y,gz,"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "false||false"),
        ({"think": True}, "true||true"),
        ({"think": False}, "false||true"),
        ({"think": "high"}, "true|high|true"),
        ({"enable_thinking": False}, "false||true"),
    ],
)
def test_thinking_is_told_to_the_template(options: dict[str, Any], expected: str) -> None:
    source = "{{ .Think }}|{{ .ThinkLevel }}|{{ .IsThinkSet }}{{ range .Messages }}{{ end }}"
    assert render(source, **options) == expected


def test_a_suffix_is_filled_in() -> None:
    template = GoChatTemplate("<pre>{{ .Prompt }}<suf>{{ .Suffix }}<mid>{{ .Response }}")
    assert template.capabilities.insert
    assert template.fill("a", "b") == "<pre>a<suf>b<mid>"


def test_abilities_are_read_from_the_template() -> None:
    plain, rich = GoChatTemplate(MESSAGES), GoChatTemplate(
        "{{ if $.Tools }}{{ end }}{{ range .Messages }}{{ if .Thinking }}"
        "<think>{{ .Thinking }}</think>{{ end }}{{ end }}"
    )  # fmt: skip
    assert plain.capabilities == Capabilities()
    assert rich.capabilities.tools
    assert rich.capabilities.thinking_tags == ("<think>", "</think>")


def test_the_beginning_of_the_answer_cannot_be_left_out() -> None:
    with pytest.raises(TemplateError, match="always adds the generation prompt"):
        GoChatTemplate(MESSAGES).render(TALK, add_generation_prompt=False)


def test_dates_are_of_today_and_yesterday() -> None:
    today, yesterday = render("{{ currentDate }} {{ yesterdayDate }}{{ .Response }}", []).split()
    assert len(today) == len(yesterday) == 10
    assert yesterday < today


def test_parts_of_text_are_paragraphs_and_others_are_refused() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render(MESSAGES, [turn("user", parts)]) == "[user:a\n\nb]"
    with pytest.raises(TemplateError, match="not text"):
        render(MESSAGES, [turn("user", [{"type": "image_url"}])])
    with pytest.raises(TemplateError, match="neither text nor a list"):
        render(MESSAGES, [turn("user", 3)])
    with pytest.raises(TemplateError, match="no role"):
        render(MESSAGES, [{"content": "x"}])


def test_a_lone_surrogate_of_json_is_replaced() -> None:
    assert render(MESSAGES, [turn("user", "a\ud800b")]) == "[user:a\ufffdb]"


def test_deep_arguments_and_schemas_are_refused() -> None:
    deep: Any = "x"
    for _ in range(3000):
        deep = {"a": deep}
    call = {"function": {"name": "f", "arguments": deep}}
    with pytest.raises(TemplateError, match="are nested too deeply"):
        render(MESSAGES, [turn("assistant", "", tool_calls=[call])])
    tool = {"function": {"name": "f", "parameters": {"properties": {"p": {"items": deep}}}}}
    with pytest.raises(TemplateError, match="are nested too deeply"):
        GoChatTemplate(MESSAGES).render([], [tool])


def test_a_long_conversation_is_no_bomb() -> None:
    messages = [turn("user" if n % 2 else "assistant", "word " * 200) for n in range(3000)]
    assert len(render(MESSAGES, messages)) > 3_000_000
