"""How long a chat template takes for a conversation of 100 turns, in both languages.

python -m tests.benchmarks.templates: milliseconds of one rendering, after the first.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Final

from modelfile.templates.dialect import GO, JINJA, compile_template

TURNS: Final = 100
REPEATS: Final = 50
SOURCES: Final = {
    "chatml": {
        GO: "{{- range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}"
        "<|im_start|>assistant\n",
        JINJA: "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    },
    "tools and thinking": {
        GO: "{{- if or .System .Tools }}<|im_start|>system\n{{ .System }}\n"
        '{{- range .Tools }}{"type": "function", "function": {{ .Function }}}\n{{ end }}'
        "<|im_end|>\n"
        "{{ end }}{{- range $i, $_ := .Messages }}"
        "{{- $last := eq (len (slice $.Messages $i)) 1 -}}"
        '{{- if eq .Role "user" }}<|im_start|>user\n{{ .Content }}<|im_end|>\n'
        '{{ else if eq .Role "assistant" }}<|im_start|>assistant\n'
        "{{ if .Thinking }}<think>{{ .Thinking }}</think>\n{{ end }}{{ .Content }}"
        '{{- range .ToolCalls }}<tool_call>{"name": "{{ .Function.Name }}", "arguments": '
        "{{ .Function.Arguments }}}</tool_call>{{ end }}{{ if not $last }}<|im_end|>\n{{ end }}"
        '{{- else if eq .Role "tool" }}<|im_start|>user\n<tool_response>{{ .Content }}'
        "</tool_response><|im_end|>\n{{ end }}"
        '{{- if and (ne .Role "assistant") $last }}<|im_start|>assistant\n{{ end }}{{- end }}',
        JINJA: "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n"
        "{% endfor %}<|im_end|>\n{% endif %}{% for m in messages %}"
        "{% if m.role == 'user' %}<|im_start|>user\n{{ m.content }}<|im_end|>\n"
        "{% elif m.role == 'assistant' %}<|im_start|>assistant\n"
        "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>\n{% endif %}"
        "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>"
        "{{ c.function | tojson }}</tool_call>{% endfor %}"
        "{% if not loop.last %}<|im_end|>\n{% endif %}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    },
}
TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "Does something",
            "parameters": {"type": "object", "properties": {"x": {"type": "string"}}},
        },
    }
    for number in range(3)
]


def conversation(turns: int) -> list[dict[str, Any]]:
    """A system message, then user and assistant in turn."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are helpful."}]
    for number in range(turns):
        role = "user" if number % 2 == 0 else "assistant"
        messages.append({"role": role, "content": f"Turn {number}. " + "word " * 40})
    return messages


def milliseconds(source: str, engine: str) -> float:
    """The median of one rendering, after the first."""
    template = compile_template(source, "<s>", "</s>", engine)
    messages = conversation(TURNS)
    template.render(messages, TOOLS)
    taken = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        template.render(messages, TOOLS)
        taken.append(time.perf_counter() - started)
    return 1000 * statistics.median(taken)


def main() -> None:
    """Print a line for each template and language."""
    for name, sources in SOURCES.items():
        for engine, source in sources.items():
            print(f"{name:<20}{engine:<8}{milliseconds(source, engine):6.2f} ms")


if __name__ == "__main__":
    main()
