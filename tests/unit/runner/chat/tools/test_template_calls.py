"""Calls in the notation of a template that nobody knows. The cases are those of Ollama's tools
package, in other words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from modelfile.templates.dialect import capabilities_of
from runner.chat.families import family_of
from runner.chat.output import output_parser, special_tokens_of
from runner.chat.tools.template_calls import arguments_in
from runner.types import Finish, Usage

NAMES = ("weigh", "weigh_all", "greet", "note")
TOOLS = [{"type": "function", "function": {"name": name}} for name in NAMES]
CUT = Finish("length", Usage(1, 0, 1, 0.0, 0.0, 0.0))
BEFORE = "{{ range .Messages }}{{ .Content }}{{ if .ToolCalls }}"
LONG = "a{b}c" * 100


def template(calls: str) -> str:
    return BEFORE + calls + "{{ end }}{{ end }}{{ .Tools }}"


TAGGED = template("<act>{{ range .ToolCalls }}{{ .Function.Name }}{{ end }}</act>")


def parse(source: str, *pieces: str, cut: bool = False) -> tuple[str, list[tuple[str, Any]]]:
    parser = output_parser(source, tools=TOOLS)
    assert parser is not None
    found = [*map(parser.feed, pieces), parser.finish("", 0, CUT if cut else None)]
    calls = [(c.name, json.loads(c.arguments)) for parts in found for c in parts.calls]
    return "".join(parts.content for parts in found), calls


@pytest.mark.parametrize(
    ("calls", "tags"),
    [
        ("", None),
        ("{{ range .ToolCalls }}{{ . }}{{ end }}", None),
        (" {{ range .ToolCalls }}\n{{ . }}\n{{ end }}", None),
        ("```json\n", ("```json", None)),
        ("\n [ {{ range .ToolCalls }}{{ . }}{{ end }}]", ("[", None)),
        ("{{ range .ToolCalls }}{{ . }}{{ end }}]", None),
        ('{{ range .ToolCalls }}{"name": "{{ .Function.Name }}"}{{ end }}', None),
        ("<|as|>{{ range .ToolCalls }}<|a|>{{ . }}<|x|>{{ end }}<|y|>", ("<|as|>", "<|y|>")),
        ("{{ range .ToolCalls }}<c>{{ . }}</c>{{ end }}", ("<c>", "</c>")),
        ('{{ range .ToolCalls }}<c>{"name": {{ . }}}<c>{{ end }}', ("<c>", None)),
        ("First{{ if .Other }}inner{{ end }}Second", ("First", "Second")),
        ("{{ if .Other }}{{ if .More }}text{{ end }}{{ end }}", ("text", None)),
        ("Action: ```json", ("Action: ```json", None)),
        ("functools[{{ . }}", ("functools[", None)),
        ("[CALLS] [{{ . }}", ("[CALLS] [", None)),
    ],
)  # fmt: skip
def test_the_tags_are_what_the_template_writes_around_calls(
    calls: str, tags: tuple[str, str | None] | None
) -> None:
    assert capabilities_of(template(calls)).tool_call_tags == tags


def test_a_known_notation_is_not_derived() -> None:
    for tag in ("<tool_call>", "[TOOL_CALLS]"):
        family = family_of(template(f"{tag}{{{{ . }}}}"))
        assert family is not None
        assert family.markers
    assert special_tokens_of(TAGGED, tools=True) == ("<act>", "</act>")


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("", None),
        ("  \n\t ", None),
        ('{"unit": "kg"}}', {"unit": "kg"}),
        ("{unit: kg}", None),
        ('{"name": "weigh", "arguments": {"unit": "kg", "of": 1}}', {"unit": "kg", "of": 1}),
        ('[args]{"unit": "kg"}[end]', {"unit": "kg"}),
        ('[{"name": "weigh", "arguments": {"unit": "kg"}}', {"unit": "kg"}),
        ('{"function": {"name": "weigh", "arguments": {"unit": "kg"}}}', {"unit": "kg"}),
        ('({"unit": "kg"})', {"unit": "kg"}),
        ('\n```json\n{"unit": "kg"}\n```<|end|>', {"unit": "kg"}),
        ('"arguments": {"unit": "kg"}}', {"unit": "kg"}),
        ('{"name": "weigh", "arguments": {"c": "if (x) { y(); }"}}', {"c": "if (x) { y(); }"}),
        (r'{"name": "weigh", "arguments": {"c": "{\"a\": {\"b\": 1}}"}}', {"c": '{"a": {"b": 1}}'}),
        (r'{"name": "weigh", "arguments": {"c": "so: \"v{al\" }"}}', {"c": 'so: "v{al" }'}),
        ('{"name": "weigh", "arguments": {"c": "a } in"}} {"name": "other"}', {"c": "a } in"}),
        ('{"name": "weigh", "arguments": {"c": "\\u007B and \\u007D"}}', {"c": "{ and }"}),
        (r'{"name": "weigh", "arguments": ["one", "{\"a\": true}"]}', None),
        (r'{"name": "weigh", "arguments": {"c": "C:\\{App}\\"}}', {"c": "C:\\{App}\\"}),
        ("{\"name\": \"weigh\", \"arguments\": {\"c\": \"a = '{b}'\"}}", {"c": "a = '{b}'"}),
        ('{"name": "weigh", "arguments": {"c": "some {"', None),
        ('{"name": "weigh", "arguments": {"c": "// { and }"}}', {"c": "// { and }"}),
        ('{"name": "weigh", "arguments": {"a": "", "b": "{v}"}}', {"a": "", "b": "{v}"}),
        ('{"name": "weigh", "arguments": {"k{": "v", "k}": "w"}}', {"k{": "v", "k}": "w"}),
        (f'{{"name": "weigh", "arguments": {{"c": "{LONG}"}}}}', {"c": LONG}),
        (r'{"name": "weigh", "arguments": {"c": "\tif {\n}"}}', {"c": "\tif {\n}"}),
        (r'{"name": "weigh", "arguments": {"c": "a\u0000{b}"}}', {"c": "a\0{b}"}),
        (r'{"name": "weigh", "arguments": {"c": "a quote\\\""}}', {"c": 'a quote\\"'}),
        ('{"name": "weigh", "arguments": {"l": ["{", {"k": 1}]}}', {"l": ["{", {"k": 1}]}),
        (r'{"name": "weigh", "arguments": "{\"unit\": \"kg\"}"}', {"unit": "kg"}),
        (r'{"name": "weigh", "parameters": "{\"unit\": \"kg\"}"}', {"unit": "kg"}),
        ('{"weigh": {"unit": "kg"}}', {"unit": "kg"}),
        (r'{"weigh": "{\"unit\": \"kg\"}"}', {"unit": "kg"}),
        ('{"name": "weigh"}', {}),
    ],
)  # fmt: skip
def test_arguments_are_found_beside_or_under_the_name(
    written: str, arguments: dict[str, Any] | None
) -> None:
    text = f"<act>weigh{written}</act>"
    expected = (text, []) if arguments is None else ("", [("weigh", arguments)])
    assert parse(TAGGED, text) == expected
    assert parse(TAGGED, *text) == expected


def test_brackets_that_are_missing_at_the_end_are_mended_unless_it_was_broken_off() -> None:
    text = '<act>weigh{"unit": "kg", "of": "tea"'
    assert parse(TAGGED, text) == ("", [("weigh", {"unit": "kg", "of": "tea"})])
    assert parse(TAGGED, text, cut=True) == ("", [])


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("hello world", "hello world", []),
        ('    <act>\n {"name": "bob"}', '    <act>\n {"name": "bob"}', []),
        ("I greet. ", "I greet. ", []),
        ("test<", "test<", []),
        ("hello <ac", "hello <ac", []),
        ("<acts><act>greet{}</act>", "<acts>", [("greet", {})]),
        ("So. <act>greet{}</act> Done.", "So. Done.", [("greet", {})]),
        ('<act>{"name": "greet", "arguments": {}}</act>'
         '<act>{"name": "weigh", "arguments": {"a": 1}}</act>', "",
         [("greet", {}), ("weigh", {"a": 1})]),
        ('<act>[{"name": "greet", "arguments": {}}, {"name": "note", "arguments": {"a": 1}}]</act>',
         "", [("greet", {}), ("note", {"a": 1})]),
        ('<act>{"name": "weigh_all", "arguments": {}}}', "", [("weigh_all", {})]),
        ('<act>{"arguments": {"a": "5"}, "name": "note"}</act>', "", [("note", {"a": "5"})]),
    ],
)  # fmt: skip
def test_what_is_beside_calls_is_content(
    text: str, content: str, calls: list[tuple[str, Any]]
) -> None:
    assert parse(TAGGED, text) == (content, calls)
    assert parse(TAGGED, *text) == (content, calls)


def test_a_call_cut_anywhere_leaves_no_markup_and_is_not_whole() -> None:
    text = '<act>{"name": "weigh", "arguments": {"kg": 12345}}</act>'
    for end in range(1, len(text) + 1):
        content, calls = parse(TAGGED, text[:end], cut=True)
        assert content == ""
        assert calls in ([], [("weigh", {"kg": 12345})])
        assert not calls or end > text.index("5}")


def test_the_list_of_firefunction_and_a_call_in_a_bracket() -> None:
    source = template(' functools[{"name": "{{ . }}", "arguments": {{ . }}}]')
    text = 'functools[{"name": "note", "arguments": {"a": 1}}]'
    assert parse(source, text) == ("", [("note", {"a": 1})])
    listed = template("[{{ range .ToolCalls }}{{ . }}{{ end }}]")
    assert parse(listed, text.removeprefix("functools")) == ("", [("note", {"a": 1})])


def test_what_is_too_long_for_a_call_is_content() -> None:
    text = '<act>greet{"a": "' + "x" * 70_000
    assert parse(TAGGED, *[text[at : at + 4096] for at in range(0, len(text), 4096)]) == (text, [])


def test_arguments_of_something_else_are_none() -> None:
    assert arguments_in([1], "weigh") is None
    assert arguments_in({"a": [{"weigh": {"b": 1}}]}, "weigh") == {"b": 1}
