"""Every family: its calls are found, whatever pieces they come in, and nothing else is lost."""

from __future__ import annotations

import json
import re
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfile.families import parsers
from runner.chat.families import FAMILIES, PARSERS, family_of
from runner.chat.output import output_parser, special_tokens_of, tool_parser_of
from runner.types import ToolCall
from tests.properties import examples

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {
                "properties": {
                    "a": {"type": "integer"},
                    "s": {"type": "string"},
                    "on": {"type": "boolean"},
                    "items": {"type": "array"},
                }
            },
        },
    },
    *({"type": "function", "function": {"name": name}} for name in "fg"),
]
TEMPLATES = {
    "hermes": "<tool_call>",
    "qwen3_coder": "<tool_call> <function=",
    "glm": "<tool_call> <arg_key>",
    "mistral": "[TOOL_CALLS]",
    "deepseek": "<｜tool▁calls▁begin｜>",
    "kimi": "<|tool_calls_section_begin|>",
    "cohere": "<|START_ACTION|>",
    "llama3": "<|python_tag|>",
    "pythonic": "[func_name1(params_name1=",
    "plain_json": 'answer with {"name": ..., "parameters": ...}',
    "functiongemma": "<start_function_call>",
    "gemma4": "<|tool_call>",
    "gemma": "```tool_code",
    "olmo3": "<function_calls>",
    "lfm2": "<|tool_call_start|>",
    "minimax": "<minimax:tool_call>",
    "deepseek_v32": "{{ '<｜DSML｜' + 'function_calls>' }}",
    "granite": "<|tool_call|>",
    "glimmer": "<atem:function_calls>",
    "tagged_json": "<TOOLCALL>",
    "firefunction": 'as functools[{"name": [function name], ...}]',
}
ARGUMENTS = {"a": 5, "s": "7 {x}", "on": True, "items": [1, "b"]}
AS_JSON = json.dumps(ARGUMENTS)
XML = (
    "<tool_call>\n<function=add>\n<parameter=a>\n5\n</parameter>\n<parameter=s>\n7 {x}\n"
    '</parameter>\n<parameter=on>\nTrue\n</parameter>\n<parameter=items>\n[1, "b"]\n'
    "</parameter>\n</function>\n</tool_call>"
)
GLM = (
    "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>5</arg_value>\n<arg_key>s</arg_key>\n"
    "<arg_value>7 {x}</arg_value>\n<arg_key>on</arg_key>\n<arg_value>true</arg_value>\n"
    '<arg_key>items</arg_key>\n<arg_value>[1, "b"]</arg_value>\n</tool_call>'
)
R1 = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n"
    f"{AS_JSON}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
V31 = (
    f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{AS_JSON}<｜tool▁call▁end｜>"
    "<｜tool▁calls▁end｜>"
)
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>"
    f"{AS_JSON}<|tool_call_end|><|tool_calls_section_end|>"
)
PYTHON = "add(a=5, s='7 {x}', on=True, items=[1, \"b\"])"
INVOKE = (
    '<minimax:tool_call>\n<invoke name="add">\n<parameter name="a">5</parameter>\n'
    '<parameter name="s">7 {x}</parameter>\n<parameter name="on">true</parameter>\n'
    '<parameter name="items">[1, "b"]</parameter>\n</invoke>\n</minimax:tool_call>'
)
DSML = INVOKE.replace("minimax:tool_call", "|function_calls")
DSML = re.sub(r"<(/?)\|?(?=[fip])", r"<\1｜DSML｜", DSML).replace('"s">', '"s" string="true">')
ATEM = re.sub(r"<(/?)(?=[fip])", r"<\1atem:", INVOKE.replace("minimax:tool_call", "function_calls"))
BRACED = "call:add{{a:5,s:{q}7 {{x}}{q},on:true,items:[1,{q}b{q}]}}"
UNMARKED = ("llama3", "pythonic", "plain_json")
ONE_CALL = [
    ("hermes", f'<tool_call>\n{{"name": "add", "arguments": {AS_JSON}}}\n</tool_call>'),
    ("qwen3_coder", XML),
    ("glm", GLM),
    ("mistral", f'[TOOL_CALLS][{{"name": "add", "arguments": {AS_JSON}}}]'),
    ("mistral", f"[TOOL_CALLS]add[ARGS]{AS_JSON}"),
    ("mistral", f"[TOOL_CALLS]add[CALL_ID]123456789[ARGS]{AS_JSON}"),
    ("deepseek", R1),
    ("deepseek", V31),
    ("kimi", KIMI),
    (
        "cohere",
        f'<|START_ACTION|>[{{"tool_call_id": "0", "tool_name": "add", "parameters": {AS_JSON}}}]'
        "<|END_ACTION|>",
    ),
    ("llama3", f'{{"name": "add", "parameters": {AS_JSON}}}'),
    ("llama3", f'<|python_tag|>{{"type": "function", "name": "add", "parameters": {AS_JSON}}}'),
    ("llama3", f"[{PYTHON}]"),
    ("pythonic", f"[{PYTHON}]"),
    ("pythonic", f"<|python_start|>[{PYTHON}]<|python_end|>"),
    ("pythonic", f'{{"name": "add", "parameters": {AS_JSON}}}'),
    ("plain_json", f'{{"name": "add", "arguments": {AS_JSON}}}'),
    ("plain_json", f'```json\n[{{"name": "add", "parameters": {AS_JSON}}}]\n```'),
    ("functiongemma", f"<start_function_call>{BRACED.format(q='<escape>')}<end_function_call>"),
    ("gemma4", f"<|tool_call>{BRACED.format(q='<|' + chr(34) + '|>')}<tool_call|>"),
    ("gemma", f"```tool_code\nprint({PYTHON})\n```"),
    ("gemma", f"```tool_code\n[{PYTHON}]\n```"),
    ("olmo3", f"<function_calls>\n{PYTHON}\n</function_calls>"),
    ("lfm2", f"<|tool_call_start|>[{PYTHON}]<|tool_call_end|>"),
    ("minimax", INVOKE),
    ("deepseek_v32", DSML),
    ("deepseek_v32", DSML.replace("function_calls", "tool_calls")),
    ("glimmer", ATEM),
    ("tagged_json", f'<TOOLCALL>[{{"name": "add", "arguments": {AS_JSON}}}]</TOOLCALL>'),
    ("qwen3_coder", f"<function=add>{AS_JSON}</function>"),
    ("firefunction", f'functools[{{"name": "add", "arguments": {AS_JSON}}}]'),
    ("granite", f'<|tool_call|>[{{"name": "add", "arguments": {AS_JSON}}}]'),
    ("qwen3_coder", XML.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")),
    ("deepseek", V31.removeprefix("<｜tool▁calls▁begin｜>").removesuffix("<｜tool▁calls▁end｜>")),
    ("hermes", f'<tool_call>{{"name": "add", "arguments": {ARGUMENTS}}}</tool_call>'),
    ("hermes", f"<tool_call>\n<tool_call>{{'name': 'add', 'arguments': {ARGUMENTS}}}</tool_call>"),
]
TWO_CALLS = [
    ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}'),
    ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "g"}]'),
    ("llama3", '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}'),
    (
        "cohere",
        '<|START_ACTION|>[{"tool_name": "f", "parameters": {"a": 1}}, {"tool_name": "g"}]'
        "<|END_ACTION|>",
    ),
    ("qwen3_coder",
     "<tool_call><function=f><parameter=a>1</parameter></function></tool_call>\n"
     "<tool_call><function=g></function></tool_call>"),
    ("olmo3", "<function_calls>f(a=1)\ng()</function_calls>"),
    ("firefunction", 'functools[{"name": "f", "arguments": {"a": 1}}, {"name": "g"}]'),
    ("lfm2", "<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>"),
    ("gemma4", "<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{}<tool_call|>"),
    ("minimax",
     '<minimax:tool_call><invoke name="f"><parameter name="a">1</parameter></invoke>'
     '<invoke name="g"></invoke></minimax:tool_call>'),
]  # fmt: skip


def parse(family: str, *pieces: str) -> tuple[str, list[tuple[str, Any]]]:
    parser = tool_parser_of(family_of(TEMPLATES[family]), TOOLS)
    assert parser is not None
    parts = [part for piece in pieces for part in parser.feed(piece)]
    parts += parser.finish()
    text = "".join(part for part in parts if isinstance(part, str))
    calls = [(p.name, json.loads(p.arguments)) for p in parts if isinstance(p, ToolCall)]
    return text, calls


@pytest.mark.parametrize(("family", "text"), ONE_CALL)
def test_a_call_is_found_with_typed_arguments(family: str, text: str) -> None:
    assert parse(family, text) == ("", [("add", ARGUMENTS)])
    assert parse(family, *text) == ("", [("add", ARGUMENTS)])


@pytest.mark.parametrize(("family", "text"), TWO_CALLS)
def test_two_calls_are_found_in_order(family: str, text: str) -> None:
    assert parse(family, *text) == ("", [("f", {"a": 1}), ("g", {})])


@pytest.mark.parametrize(
    ("family", "text"),
    [row for row in ONE_CALL if not row[1].startswith(("{", "[{", "[add", "```j"))],
)
def test_text_before_a_call_stays(family: str, text: str) -> None:
    assert parse(family, "Let me see. ", text) == ("Let me see.", [("add", ARGUMENTS)])


@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize("text", ["", "plain", " [1, 2] {", "a < b", '{"a": 1}', "[TOOL_C", "<"])
def test_other_text_is_content(family: str, text: str) -> None:
    assert parse(family, text) == (text, [])


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name": "f", "arguments": {"a": 1,}}', {"a": 1}),
        ('{"name": "f", "arguments": {"a": {"b": [1', {"a": {"b": [1]}}),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', {"a": 1}),
    ],
)
def test_what_is_malformed_in_one_way_only_is_mended(text: str, arguments: Any) -> None:
    assert parse("hermes", f"<tool_call>{text}</tool_call>") == ("", [("f", arguments)])


@pytest.mark.parametrize(
    "text", ['{"name": "f", "arguments": {"a": "unclos', "f(1)", "[]", "{}", '{"name": 3}']
)
def test_what_cannot_be_mended_is_content(text: str) -> None:
    whole = f"<tool_call>{text}</tool_call>"
    assert parse("hermes", whole) == (whole, [])


@examples(30)
@given(st.sampled_from(ONE_CALL + TWO_CALLS), st.data())
def test_damaged_calls_neither_fail_nor_depend_on_the_pieces(
    row: tuple[str, str], data: st.DataObject
) -> None:
    family, text = row
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    damaged = text[:start] + data.draw(st.text(max_size=3)) + text[end:]
    cut = data.draw(st.integers(0, len(damaged)))
    assert parse(family, damaged) == parse(family, damaged[:cut], damaged[cut:])


def test_the_family_is_named_by_parser_or_known_by_the_template() -> None:
    for name, template in TEMPLATES.items():
        assert family_of(template) is import_module(f"runner.chat.families.{name}").FAMILY
    assert family_of("{{ messages }}") is None
    named = family_of("{{ messages }}", "qwen3-coder")
    assert named is not None
    assert named.markers == ("<function=",)
    assert "[TOOL_CALLS]" in special_tokens_of(TEMPLATES["mistral"], tools=True)
    assert special_tokens_of(None, tools=True) == ()


def test_mending_leaves_strings_alone() -> None:
    assert parse("hermes", '<tool_call>{"name": "f", "arguments": {"t": "x,}y",}}</tool_call>') == (
        "",
        [("f", {"t": "x,}y"})],
    )
    text = '{"name": "f", "parameters": {"t": "a};b"}}; {"name": "g", "parameters": {}}'
    assert parse("llama3", text) == ("", [("f", {"t": "a};b"}), ("g", {})])


@pytest.mark.parametrize(
    ("family", "text", "value"),
    [
        (
            "hermes",
            '<tool_call>{"name": "f", "arguments": {"t": "</tool_call>"}}</tool_call>',
            "</tool_call>",
        ),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"t": "[TOOL_CALLS]"}', "[TOOL_CALLS]"),
    ],
)
def test_a_mark_inside_an_argument_is_part_of_it(family: str, text: str, value: str) -> None:
    assert parse(family, *text) == ("", [("f", {"t": value})])


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("qwen3_coder", "<tool_call>so <function=f></function> then</tool_call>"),
        ("kimi", KIMI.replace("<|tool_calls_section_end|>", " then<|tool_calls_section_end|>")),
        ("deepseek", V31.replace("<｜tool▁calls▁end｜>", " then<｜tool▁calls▁end｜>")),
    ],
)
def test_text_beside_a_call_is_not_lost(family: str, text: str) -> None:
    content, calls = parse(family, text)
    assert content.split()[-1] == "then"
    assert len(calls) == 1


def test_passthrough_leaves_answers_alone() -> None:
    assert output_parser("<tool_call>", tools=TOOLS, name="passthrough") is None


PIECES = sorted(
    {token for template in TEMPLATES.values() for token in special_tokens_of(template, tools=True)}
    | {"```tool_code", "```", "<function=f>", "</function>", "<parameter=a>", "</parameter>"}
    | {'<invoke name="add">', "</invoke>", "call:add{a:", "add(a=", "[add(", '{"name": "add", '}
    | {
        '"arguments": {"a": ',
        '"parameters": ',
        "'",
        '"',
        "}",
        "]",
        ")",
        "(",
        "[",
        "{",
        "1e999",
        "5",
    }
    | {" ", "\n", ",", "so", "\\ud800", "NaN", "<", "<|", "`", ":"}
)


@examples(100)
@given(
    st.sampled_from(sorted(TEMPLATES)),
    st.lists(st.sampled_from(PIECES), max_size=14),
    st.integers(0, 200),
)
def test_any_row_of_marks_is_read_the_same_in_pieces_and_nothing_is_lost(
    family: str, pieces: list[str], cut: int
) -> None:
    text = "".join(pieces)
    said, calls = parse(family, text)
    assert parse(family, text[:cut], text[cut:]) == (said, calls)
    assert parse(family, *text) == (said, calls)
    if not calls:
        assert said == text


@pytest.mark.parametrize(
    ("family", "text", "said"),
    [
        ("mistral", '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}] Done.', "Done."),
        ("mistral", '[TOOL_CALLS]add[ARGS]{"a": 1} Done.', "Done."),
        ("llama3", 'I look. <|python_tag|>{"name": "add", "parameters": {"a": 1}}', "I look."),
        ("gemma4", "<|tool_call>call:add{a:1}<tool_call|><tool_call|><|tool_response>", ""),
        ("hermes", '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', ""),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1', ""),
        ("hermes", "<tool_call>{'name': 'add', 'arguments': {'a': 1,},}</tool_call>", ""),
        ("qwen3_coder", "<function=add><parameter=a>1</parameter></function></tool_call>", ""),
        ("pythonic", "[add(1)]", ""),
        ("olmo3", "<function_calls>add(a=1", ""),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1}}}}</tool_call>', ""),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1}}}', ""),
        ("hermes", '{"name": "add", "arguments": {"a": 1}}}\n</tool_call>', ""),
        ("mistral", '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}]]', ""),
        ("mistral", '[TOOL_CALLS]add[ARGS]{"a": 1}}', ""),
        ("granite", '<|tool_call|>[{"name": "add", "arguments": {"a": 1}}]]', ""),
        (
            "cohere",
            '<|START_ACTION|>[{"tool_name": "add", "parameters": {"a": 1}}]]<|END_ACTION|>',
            "",
        ),
        ("deepseek", V31.replace(AS_JSON, '{"a": 1}}'), ""),
        ("kimi", KIMI.replace(AS_JSON, '{"a": 1}}'), ""),
        ("llama3", '{"name": "add", "parameters": {"a": 1}}}', ""),
        ("pythonic", "[add(a=1)]]", ""),
        ("lfm2", "<|tool_call_start|>[add(a=1))]]<|tool_call_end|>", ""),
        ("gemma4", "<|tool_call>call:add{a:1}}<tool_call|>", ""),
        ("tagged_json", '<TOOLCALL>[{"name": "add", "arguments": {"a": 1}}]]', ""),
        ("glm", '<tool_call>add{"a": 1}}</tool_call>', ""),
    ],
)
def test_what_models_get_wrong_is_mended(family: str, text: str, said: str) -> None:
    assert parse(family, text) == (said, [("add", {"a": 1})])
    assert parse(family, *text) == (said, [("add", {"a": 1})])


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("plain_json", '{"name": "Bob", "age": 3}'),
        ("plain_json", '{"name": "other", "arguments": {}}'),
        ("llama3", '{"name": "Bob", "age": 3}'),
        ("pythonic", "[other(a=1)]"),
        ("pythonic", "[1, 2, 3]"),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1e999}}</tool_call>'),
        ("hermes", f'<tool_call>{{"name": "add", "arguments": {{"a": {"[" * 99}'),
        ("qwen3_coder", "so <tool_call> nothing </tool_call> here"),
    ],
)
def test_what_is_no_call_of_an_offered_tool_stays_as_it_is(family: str, text: str) -> None:
    assert parse(family, text) == (text, [])


def test_half_a_surrogate_pair_in_an_argument_can_be_sent_on() -> None:
    _, calls = parse(
        "hermes", '<tool_call>{"name": "f", "arguments": {"t": "\\ud800"}}</tool_call>'
    )
    assert calls == [("f", {"t": "?"})]


def test_every_name_that_parser_takes_has_one_family() -> None:
    names = [name for each in FAMILIES for name in (*each.names, *each.thinking_names)]
    assert len(names) == len(set(names))
    assert PARSERS == parsers() == {"passthrough", *names}


def test_text_without_end_in_a_call_is_given_back_when_it_is_too_long() -> None:
    text = "<tool_call>" + "x" * 70_000
    assert parse("hermes", text) == (text, [])
    assert parse("llama3", "{" + "x" * 70_000) == ("{" + "x" * 70_000, [])
