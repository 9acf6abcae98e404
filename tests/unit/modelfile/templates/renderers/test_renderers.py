"""Built-in renderers: the prompts they write, and when they count."""

from __future__ import annotations

from typing import Any

import pytest

from modelfile.notations import PARSERS, RENDERERS, fault_of
from modelfile.templates.dialect import JINJA, compile_template
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
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
ASKED = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "1+0?"}]
ANSWERED = [
    *ASKED,
    {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [CALL]},
    {"role": "tool", "content": "1", "name": "add", "tool_call_id": "x"},
]
IM = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n1+0?<|im_end|>\n"


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
            "<start_function_response>response:add{value:<escape>1<escape>}"
            "<end_function_response>",
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


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_renderer_is_jinja_and_known_by_name(name: str) -> None:
    source = renderer_source(name)
    assert source is not None
    assert compile_template(source).engine == JINJA
    assert name in RENDERERS


def test_the_renderer_counts_before_the_template_and_the_model_files() -> None:
    assert template_in_use("chatml", "mine", "file's") == (renderer_source("chatml"), False)
    assert template_in_use(None, "mine", "file's") == ("mine", False)
    assert template_in_use(None, None, "file's") == ("file's", True)


def test_without_a_built_in_renderer_a_template_stands_in() -> None:
    assert template_in_use("glimmer", "{{ .Prompt }}", "file's") == ("file's", True)
    assert template_in_use("glimmer", "{{ range .Messages }}", "file's")[1] is False
    assert needs_template("glimmer", "{{ .Prompt }}", None)
    assert not needs_template("glimmer", "{{ range .Messages }}{{ end }}", None)
    assert not needs_template("glimmer", None, "file's")
    assert not needs_template("chatml", None, None)
    assert not needs_template(None, None, None)


def test_an_unknown_name_is_told_with_near_ones() -> None:
    assert fault_of("parser", "qwen3-coder") is None
    fault = fault_of("parser", "qwen3-codr")
    assert fault is not None
    assert "PARSER 'qwen3-codr' is not known; did you mean qwen3-coder" in fault
    assert "passthrough" in (fault_of("parser", "????") or "")
    assert "passthrough" in PARSERS
