"""Built-in renderers: the prompts they write, and when they count."""

from __future__ import annotations

from typing import Any

import pytest

from modelfile.errors import BuildError
from modelfile.families import RENDERERS, check_name, parsers
from modelfile.templates.dialect import JINJA, compile_template, engine_of
from modelfile.templates.renderers import (
    BUILT_IN,
    needs_template,
    renderer_source,
    template_in_use,
)

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer", "description": "first"}},
                "required": ["a"],
            },
        },
    }
]
CALL = {"id": "x", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
ASKED = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "1+0?"}]
ANSWERED = [
    *ASKED,
    {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [CALL]},
    {"role": "tool", "content": "1", "name": "add", "tool_call_id": "x"},
]
LAGUNA = "〈|EOS|〉<system>"
IM = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n1+0?<|im_end|>\n"
XML_CALL = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
XML_END = (
    "<|im_end|>\n<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n"
)
IM_THINK = IM.replace(
    "kind.", "kind. You do not currently have access to any functions. <functions></functions>"
)


def render(name: str, messages: list[dict[str, Any]], tools: Any = None, **options: Any) -> str:
    source = renderer_source(name)
    assert source is not None
    return compile_template(source).render(messages, tools, **options)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chatml", f"{IM}<|im_start|>assistant\n"),
        ("qwen3", f"{IM}<|im_start|>assistant\n"),
        ("qwen3-coder", f"{IM}<|im_start|>assistant\n"),
        ("qwen3-vl-instruct", f"{IM}<|im_start|>assistant\n"),
        ("qwen3-vl-thinking", f"{IM}<|im_start|>assistant\n<think>\n"),
        ("olmo3", f"{IM}<|im_start|>assistant\n"),
        ("lfm2", f"<|startoftext|>{IM}<|im_start|>assistant\n"),
        (
            "deepseek3.1",
            "<｜begin▁of▁sentence｜>Be kind.<｜User｜>1+0?<｜Assistant｜></think>",
        ),
        (
            "functiongemma",
            "<bos><start_of_turn>developer\nBe kind.<end_of_turn>\n<start_of_turn>user\n1+0?"
            "<end_of_turn>\n<start_of_turn>model\n",
        ),
        (
            "cogito",
            "<｜begin▁of▁sentence｜>You are Cogito, an AI assistant created by Deep Cogito, which "
            "is an AI research lab based in San Francisco."
            "\n\nBe kind.<｜User｜>1+0?<｜Assistant｜>",
        ),
        (
            "cohere",
            "<BOS_TOKEN><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|><|START_TEXT|>Be kind.\n\n\n\n"
            "# Available Tools\n```json\n[\n\n\n\n]\n```<|END_TEXT|><|END_OF_TURN_TOKEN|>"
            "<|START_OF_TURN_TOKEN|>"
            "<|USER_TOKEN|><|START_TEXT|>1+0?<|END_TEXT|><|END_OF_TURN_TOKEN|>"
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|>",
        ),
        (
            "gemma4",
            "<bos><|turn>system\nBe kind.<turn|>\n<|turn>user\n1+0?<turn|>\n<|turn>model\n",
        ),
        (
            "gemma4-large",
            "<bos><|turn>system\nBe kind.<turn|>\n<|turn>user\n1+0?<turn|>\n<|turn>model\n"
            "<|channel>thought\n<channel|>",
        ),
        (
            "glimmer",
            "<|start|>system<|message|>Be kind.\n\nReasoning strength: high.\n\n"
            '# Valid recipients: "self", "user".<|eot|><|start|>user<|message|>1+0?<|eot|>'
            "<|start|>assistant",
        ),
        ("glm-4.6", "[gMASK]<sop><|system|>\nBe kind.<|user|>\n1+0?<|assistant|>"),
        ("glm-4.7", "[gMASK]<sop><|system|>Be kind.<|user|>1+0?<|assistant|><think>"),
        (
            "laguna",
            f"{LAGUNA}\n\nBe kind.\n</system>\n<user>\n1+0?\n</user>\n<assistant>\n</think>",
        ),
        ("poolside-v1", f"{LAGUNA}Be kind.</system>\n<user>1+0?</user>\n<assistant><think>"),
        ("nemotron-3-nano", f"{IM}<|im_start|>assistant\n<think>\n"),
        ("nemotron-3.5-nano", f"{IM}<|im_start|>assistant\n<think>\n"),
        ("olmo3.1", f"{IM}<|im_start|>assistant\n"),
        ("olmo3-think", f"{IM_THINK}<|im_start|>assistant\n<think>"),
        ("qwen3.5", f"{IM}<|im_start|>assistant\n<think>\n"),
    ],
)
def test_a_question_becomes_the_models_own_prompt(name: str, expected: str) -> None:
    assert render(name, ASKED) == expected


@pytest.mark.parametrize(
    ("name", "end"),
    [
        (
            "qwen3",
            '<|im_start|>assistant\n<think>\nhm\n</think>\n\n<tool_call>\n{"name": "add", '
            '"arguments": {"a": 1}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n1\n'
            "</tool_response><|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "qwen3-coder",
            "<|im_start|>assistant\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n"
            "</function>\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n1\n"
            "</tool_response>\n<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "deepseek3.1",
            "<｜User｜>1+0?<｜Assistant｜></think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add"
            '<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>'
            "<｜tool▁output▁begin｜>1<｜tool▁output▁end｜>",
        ),
        (
            "olmo3",
            "<|im_start|>assistant\n<function_calls>add(a=1)</function_calls><|im_end|>\n"
            "<|im_start|>environment\n1<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "lfm2",
            "<|im_start|>assistant\n<|tool_call_start|>[add(a=1)]<|tool_call_end|><|im_end|>\n"
            "<|im_start|>tool\n<|tool_response_start|>1<|tool_response_end|><|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (
            "functiongemma",
            "<start_of_turn>model\n<start_function_call>call:add{a:1}<end_function_call>"
            "<start_function_response>response:add{<escape>1<escape>}"
            "<end_function_response>",
        ),
        (
            "cogito",
            "<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n"
            '{"a": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>'
            "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>1<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"
            "<｜Assistant｜>",
        ),
        (
            "cohere",
            "<|CHATBOT_TOKEN|>\n            \n                "
            '<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n\n    {"tool_call_id": "0", '
            '"tool_name": "add", "parameters": {"a": 1}}\n\n]<|END_ACTION|><|END_OF_TURN_TOKEN|>'
            "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|><|START_TOOL_RESULT|>[\n    {\n        "
            '"tool_call_id": "0",\n        "results": {\n\n            \n            "0": '
            '{"content": "1"}\n\n        },\n        "is_error": null\n    }\n\n]'
            "<|END_TOOL_RESULT|>"
            "<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|>",
        ),
        (
            "gemma4",
            '<|tool>declaration:add{description:<|"|>Adds.<|"|>,parameters:{properties:{a:{'
            'description:<|"|>first<|"|>,type:<|"|>INTEGER<|"|>}},required:[<|"|>a<|"|>],'
            'type:<|"|>OBJECT<|"|>}}<tool|><turn|>\n<|turn>user\n1+0?<turn|>\n<|turn>model\n'
            "<|channel>thought\nhm\n<channel|><|tool_call>call:add{a:1}<tool_call|>"
            '<|tool_response>response:add{value:<|"|>1<|"|>}<tool_response|>',
        ),
        (
            "glimmer",
            "<|start|>assistant to=self<|message|>hm<|eom|><|start|>assistant to=add<|message|>"
            '<atem:function_calls>\n<atem:invoke name="add">\n<atem:parameter name="a">1'
            "</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eot|><|start|>tool add"
            '<|message|><tool_output name="add">\n1\n</tool_output><|eot|><|start|>assistant',
        ),
        (
            "glm-4.6",
            "<|assistant|>\n<think>hm</think>\n<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1"
            "</arg_value>\n</tool_call><|observation|>\n<tool_response>\n1\n</tool_response>"
            "<|assistant|>",
        ),
        (
            "glm-4.7",
            "<|assistant|><think>hm</think><tool_call>add<arg_key>a</arg_key><arg_value>1"
            "</arg_value></tool_call><|observation|><tool_response>1</tool_response><|assistant|>"
            "<think>",
        ),
        (
            "harmony",
            "# Tools\n\n## functions\n\nnamespace functions {\n\n// Adds.\ntype add = (_: {\n"
            "// first\na: number,\n}) => any;\n\n} // namespace functions<|end|>"
            "<|start|>user<|message|>1+0?<|end|><|start|>assistant<|channel|>analysis<|message|>hm"
            "<|end|><|start|>assistant "
            'to=functions.add<|channel|>commentary json<|message|>{"a": 1}<|call|><|start|>'
            'functions.add to=assistant<|channel|>commentary<|message|>"1"<|end|>'
            "<|start|>assistant",
        ),
        (
            "laguna",
            "<assistant>\n<think>\nhm\n</think>\n<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1"
            "</arg_value>\n</tool_call>\n</assistant>\n<tool_response>\n1\n</tool_response>\n"
            "<assistant>\n</think>",
        ),
        (
            "poolside-v1",
            "<assistant><think>hm</think><tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value>"
            "</tool_call></assistant>\n<tool_response>1</tool_response>\n<assistant><think>",
        ),
        ("nemotron-3-nano", f"<think>\nhm\n</think>\n{XML_CALL}\n{XML_END}"),
        ("nemotron-3.5-nano", f"<think>\nhm</think>\n{XML_CALL}\n{XML_END}"),
        (
            "qwen3.5",
            f"<think>\nhm\n</think>\n\n{XML_CALL}<|im_end|>\n<|im_start|>user\n<tool_response>\n1\n"
            "</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n",
        ),
    ],
)
def test_a_call_and_its_result_are_written_as_the_model_writes_them(name: str, end: str) -> None:
    prompt = render(name, ANSWERED, TOOLS)
    assert prompt.endswith(end)
    assert "Adds." in prompt


def test_thinking_can_be_switched() -> None:
    assert render("qwen3", ASKED, enable_thinking=False).endswith("<think>\n\n</think>\n\n")
    assert render("deepseek3.1", ASKED, thinking=True).endswith("<think>")
    assert render("qwen3.5", ASKED, enable_thinking=False).endswith("<think>\n\n</think>\n\n")
    assert render("glm-4.7", ASKED, enable_thinking=False).endswith("<|assistant|></think>")
    assert render("glm-4.6", ASKED, enable_thinking=False).endswith("\n<think></think>")
    assert "system\n<|think|>\nBe kind." in render("gemma4", ASKED, enable_thinking=True)
    assert "Enable deep thinking" in render("cogito", ASKED, enable_thinking=True)
    assert "\n\nReasoning: high\n\n" in render("harmony", ASKED, reasoning_effort="high")
    assert "Reasoning strength: low." in render("glimmer", ASKED, reasoning_effort="low")
    assert "effort is set to low." in render("qwen3.8", ASKED, reasoning_effort="low")
    assert render("nemotron-3-nano", ASKED, enable_thinking=False).endswith("<think></think>")


def test_thoughts_before_the_last_question_are_left_out() -> None:
    turns = [*ANSWERED, {"role": "assistant", "content": "1", "reasoning_content": "so"}, ASKED[1]]
    for name in ("qwen3", "qwen3.5", "glm-4.6", "gemma4", "nemotron-3-nano", "harmony"):
        prompt = render(name, turns, TOOLS)
        assert "hm" not in prompt.replace("them", "")
        assert "so<" not in prompt
    assert "hm" in render("qwen3.8", turns, TOOLS)
    assert "<think>hm</think>" in render("glm-4.7", turns, TOOLS)


def test_an_answer_that_has_begun_stays_open() -> None:
    begun = {"role": "assistant", "content": "One", "reasoning_content": "hm"}
    assert render("qwen3-vl-thinking", [ASKED[1], begun]).endswith(
        "<|im_start|>assistant\n<think>\nhm\n</think>\n\nOne"
    )
    thought = {**begun, "content": ""}
    assert render("qwen3-vl-thinking", [ASKED[1], thought]).endswith("<think>\nhm")
    assert render("cohere", [ASKED[1], {**begun, "reasoning_content": None}]).endswith(
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_TEXT|>One"
    )


def test_qwen3_vl_thinks_unless_it_is_told_not_to() -> None:
    turns = [*ANSWERED, {"role": "assistant", "content": "1", "reasoning_content": "so"}, ASKED[1]]
    prompt = render("qwen3-vl-thinking", turns, TOOLS, enable_thinking=False)
    assert "<think>" not in prompt
    assert prompt.endswith("<|im_start|>assistant\n")
    later = [*ANSWERED, {"role": "user", "content": "<tool_response>2</tool_response>"}]
    assert "<think>\nhm<tool_call>" in render("qwen3-vl-thinking", later, TOOLS)


def test_cohere_writes_each_tool_and_result_apart() -> None:
    two = [*TOOLS, {"type": "function", "function": {"name": "b", "description": 'a "b"'}}]
    prompt = render("cohere", ASKED, two)
    assert '[\n\n    {"name": "add", "description": "Adds.", "parameters": {' in prompt
    assert '"responses": null},\n\n\n    {"name": "b", "description": "a \\"b\\"", ' in prompt
    assert '"parameters": {}, "responses": null}\n\n\n]\n```<|END_TEXT|>' in prompt
    calls = [{**CALL, "id": "x"}, {**CALL, "id": "y"}]
    asked = {"role": "assistant", "content": "", "tool_calls": calls}
    results = [{"role": "tool", "content": name, "tool_call_id": name} for name in "yx"]
    prompt = render("cohere", [ASKED[1], asked, *results])
    assert prompt.index('"tool_call_id": "1",\n        "results"') < prompt.index(
        '"tool_call_id": "0",\n        "results"'
    )


def test_functiongemma_names_the_call_that_a_result_is_of() -> None:
    other = {"id": "y", "type": "function", "function": {"name": "b", "arguments": {"a": 1.0}}}
    asked = {"role": "assistant", "content": "", "tool_calls": [CALL, other]}
    by_id = [{"role": "tool", "content": name, "tool_call_id": name} for name in "yx"]
    assert render("functiongemma", [ASKED[1], asked, *by_id]).endswith(
        "call:b{a:1}<end_function_call><start_function_response>response:b{<escape>y<escape>}"
        "<end_function_response><start_function_response>response:add{<escape>x<escape>}"
        "<end_function_response>"
    )
    in_order = [{"role": "tool", "content": name} for name in "yx"]
    assert "response:add{<escape>y" in render("functiongemma", [ASKED[1], asked, *in_order])
    empty = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    tool = {"type": "function", "function": empty}
    assert "f{description:<escape><escape>,parameters:{type:<escape>OBJECT<escape>}}" in render(
        "functiongemma", ASKED, [tool]
    )


def test_harmony_writes_schemas_as_typescript() -> None:
    properties = {
        "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
        "days": {"type": "array", "items": {"type": "integer"}},
        "where": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
    }
    parameters = {"type": "object", "properties": properties, "required": ["days"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    assert (
        'type f = (_: {\nunit?: "c" | "f", // default: c,\ndays: number[],\nwhere?: {\nx: \n'
        "                number},\n}) => any;" in render("harmony", ASKED, [tool])
    )


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_renderer_is_jinja_and_known_by_name(name: str) -> None:
    source = renderer_source(name)
    assert source is not None
    assert engine_of(source) == JINJA
    assert name in RENDERERS


def test_the_renderer_counts_before_the_template_and_the_model_files() -> None:
    assert template_in_use("chatml", "mine", "file's") == (renderer_source("chatml"), False)
    assert template_in_use(None, "mine", "file's") == ("mine", False)
    assert template_in_use(None, None, "file's") == ("file's", True)


def test_without_a_built_in_renderer_a_template_stands_in() -> None:
    assert template_in_use("ornith", "{{ .Prompt }}", "file's") == ("file's", True)
    assert template_in_use("ornith", "{{ range .Messages }}", "file's")[1] is False
    assert needs_template("ornith", "{{ .Prompt }}", None)
    assert not needs_template("ornith", "{{ range .Messages }}{{ end }}", None)
    assert not needs_template("ornith", None, "file's")
    assert not needs_template("chatml", None, None)
    assert not needs_template(None, None, None)


@pytest.mark.parametrize("name", ["ornith", "glm-ocr"])
def test_a_renderer_that_would_not_be_applied_is_refused(name: str) -> None:
    with pytest.raises(BuildError, match=f"RENDERER {name} is not built in; leave it out"):
        check_name("renderer", name)
    check_name("parser", name)


def test_an_unknown_name_is_told_with_near_ones() -> None:
    check_name("parser", "qwen3-coder")
    with pytest.raises(BuildError, match="unknown PARSER 'qwen3-codr'; did you mean qwen3-coder"):
        check_name("parser", "qwen3-codr")
    with pytest.raises(BuildError, match=r"expected one of .*passthrough"):
        check_name("parser", "zzzz")
    assert "passthrough" in parsers()
