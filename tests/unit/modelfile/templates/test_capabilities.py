"""What templates say of their models."""

from __future__ import annotations

import pytest

from modelfile.templates.chat_template import Capabilities
from modelfile.templates.dialect import GO, JINJA, capabilities_of


def jinja(*, tools: bool = False, thinking: bool = False) -> Capabilities:
    return Capabilities(tools, thinking, optional_generation_prompt=True)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ .Prompt }}", Capabilities()),
        ("{{ range .Tools }}{{ end }}", Capabilities(tools=True)),
        ("{{ .Prompt }}{{ .Suffix }}", Capabilities(insert=True)),
        (
            "{{ range .Messages }}{{ if .Thinking }}<t> {{ .Thinking }} </t>{{ end }}{{ end }}",
            Capabilities(thinking=True, thinking_tags=("<t>", "</t>")),
        ),
        ("{{ range .Messages }}a{{ .Content }}b{{ end }}{{ if .Think }}x{{ end }}", Capabilities()),
        ("{{ messages }}", jinja()),
        ("{% if tools %}x{% endif %}", jinja(tools=True)),
        ("{% if enable_thinking %}x{% endif %}", jinja(thinking=True)),
        ("{{ '<think>' }}", jinja(thinking=True)),
        ("{{ content.split('</think>')[-1] }}", jinja()),
        ("{{ messages[0].toolset }}", jinja()),
        ("{{ if .Tools }}", Capabilities()),
    ],
)
def test_capabilities_come_from_what_is_read(source: str, expected: Capabilities) -> None:
    assert capabilities_of(source) == expected


def test_the_language_can_be_forced() -> None:
    assert capabilities_of("{{ .tools }}", JINJA).tools
    assert not capabilities_of("{{ tools }}", GO).tools
