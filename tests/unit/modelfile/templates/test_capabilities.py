"""What templates say of their models."""

from __future__ import annotations

import pytest

from modelfile.templates.capabilities import Capabilities, capabilities_of
from modelfile.templates.dialect import GO, JINJA


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ .Prompt }}", Capabilities()),
        ("{{ range .Tools }}{{ end }}", Capabilities(tools=True)),
        ("{{ .Prompt }}{{ .Suffix }}", Capabilities(insert=True)),
        (
            "{{ range .Messages }}{{ if .Thinking }}<t> {{ .Thinking }} </t>{{ end }}{{ end }}",
            Capabilities(thinking=True, thinking_marks=("<t>", "</t>")),
        ),
        ("{{ range .Messages }}a{{ .Content }}b{{ end }}{{ if .Think }}x{{ end }}", Capabilities()),
        ("{{ messages }}", Capabilities()),
        ("{% if tools %}x{% endif %}", Capabilities(tools=True)),
        ("{% if enable_thinking %}x{% endif %}", Capabilities(thinking=True)),
        ("{{ '<think>' }}", Capabilities(thinking=True)),
        ("{{ content.split('</think>')[-1] }}", Capabilities()),
        ("{{ messages[0].toolset }}", Capabilities()),
        ("{{ if .Tools }}", Capabilities()),
    ],
)
def test_capabilities_come_from_what_is_read(source: str, expected: Capabilities) -> None:
    assert capabilities_of(source) == expected


def test_the_language_can_be_forced() -> None:
    assert capabilities_of("{{ .tools }}", JINJA).tools
    assert not capabilities_of("{{ tools }}", GO).tools
