"""What the parsers of answers cost per token: python -m tests.benchmarks.output_parsers.

Every answer is fed in pieces of four characters, about a token: reasoning, content and a call of
each family, and a long answer without either. Prints microseconds per piece, the best of five runs.
"""

from __future__ import annotations

import json
import time

from runner.chat.output import output_parser

TARGET_US = 20.0
TOOLS = [{"function": {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}}}}]
ARGUMENTS = json.dumps({"a": 5, "text": "lorem ipsum " * 40})
PLAIN = "The quick brown fox jumps over the lazy dog, a < b and {so} [on]. " * 60
ANSWERS = {
    "hermes": (
        "<tool_call>",
        f'<tool_call>{{"name": "add", "arguments": {ARGUMENTS}}}</tool_call>',
    ),
    "qwen3_coder": (
        "<function=",
        f"<tool_call><function=add><parameter=text>{ARGUMENTS}</parameter></function></tool_call>",
    ),
    "glm": (
        "<arg_key>",
        f"<tool_call>add<arg_key>text</arg_key><arg_value>{ARGUMENTS}</arg_value></tool_call>",
    ),
    "mistral": ("[TOOL_CALLS]", f"[TOOL_CALLS]add[ARGS]{ARGUMENTS}"),
    "deepseek": (
        "<｜tool▁calls▁begin｜>",
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
    ),
    "kimi": (
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0"
        f"<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>",
    ),
    "minimax": (
        "<minimax:tool_call>",
        f'<minimax:tool_call><invoke name="add"><parameter name="text">{ARGUMENTS}</parameter>'
        "</invoke></minimax:tool_call>",
    ),
    "gemma4": ("<|tool_call>", f'<|tool_call>call:add{{text:<|"|>{PLAIN}<|"|>}}<tool_call|>'),
    "functiongemma": (
        "<start_function_call>",
        f"<start_function_call>call:add{{text:<escape>{PLAIN}<escape>}}<end_function_call>",
    ),
    "gemma": ("```tool_code", f"```tool_code\nadd(text={PLAIN!r})\n```"),
    "olmo3": ("<function_calls>", f"<function_calls>add(text={PLAIN!r})</function_calls>"),
    "lfm2": ("<|tool_call_start|>", f"<|tool_call_start|>[add(text={PLAIN!r})]<|tool_call_end|>"),
    "pythonic": ("[func_name1(", f"[add(text={PLAIN!r})]"),
    "plain_json": ('{"name":', f'{{"name": "add", "arguments": {ARGUMENTS}}}'),
    "llama3": ("<|python_tag|>", f'{{"name": "add", "parameters": {ARGUMENTS}}}'),
    "harmony": (
        "<|start|><|channel|><|message|>",
        f"<|start|>assistant<|channel|>commentary to=functions.add<|message|>{ARGUMENTS}<|call|>",
    ),
}


def microseconds(template: str, text: str) -> float:
    """The cost of one piece of text."""
    pieces = [text[at : at + 4] for at in range(0, len(text), 4)]
    best_s = float("inf")
    for _ in range(5):
        parser = output_parser(template, tools=TOOLS)
        assert parser is not None
        began_s = time.perf_counter()
        for piece in pieces:
            parser.feed(piece)
        parser.finish()
        best_s = min(best_s, time.perf_counter() - began_s)
    return best_s / len(pieces) * 1e6


def main() -> None:
    """Print the table."""
    for family, (marker, call) in ANSWERS.items():
        template = f"{marker} </think>" if family != "harmony" else marker
        thought = (
            f"<think>{PLAIN}</think>"
            if family != "harmony"
            else (f"<|channel|>analysis<|message|>{PLAIN}<|end|>")
        )
        texts = {"plain": PLAIN, "reasoning and call": thought + call}
        for name, text in texts.items():
            cost_us = microseconds(template, text)
            verdict = "met" if cost_us <= TARGET_US else "missed"
            print(
                f"{family:12} {name:20} {cost_us:6.2f} us a token (target {TARGET_US:g}: {verdict})"
            )


if __name__ == "__main__":
    main()
