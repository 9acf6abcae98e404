"""What the daemon reads from a bundle's template."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from registry.bundle import Bundle
from runner.models.shape import abilities_of, template_of


def bundle(template: str | None, own: str | None = None, **metadata: Any) -> Bundle:
    """A bundle with its TEMPLATE and the template of the model file."""
    header = SimpleNamespace(
        architecture="llama", is_embedding=False, chat_template=own, metadata=metadata
    )
    return cast(Bundle, SimpleNamespace(template=template, header=header))


@pytest.mark.parametrize(
    ("template", "own", "expected"),
    [
        ("{{ .Prompt }}", "{{ tools }}", ["completion"]),
        ("{{ range .Tools }}{{ end }}", None, ["completion", "tools"]),
        ("{{ .Prompt }}{{ .Suffix }}", None, ["completion", "insert"]),
        (None, "{% if tools %}{{ enable_thinking }}{% endif %}", ["completion", "tools",
                                                                   "thinking"]),
        (None, None, ["completion"]),
        (None, "{{ .Tools }}", ["completion"]),
    ],
)  # fmt: skip
def test_abilities_come_from_the_template_that_counts(
    template: str | None, own: str | None, expected: list[str]
) -> None:
    assert abilities_of(bundle(template, own)).names() == expected


def test_a_template_of_its_own_for_tools_makes_the_model_take_them() -> None:
    named = {"tokenizer.chat_template.tool_use": "{{ tools }}"}
    assert abilities_of(bundle(None, "{{ messages }}", **named)).tools
    assert not abilities_of(bundle("{{ .Prompt }}", "{{ messages }}", **named)).tools


def test_the_bundles_template_comes_before_the_files() -> None:
    assert template_of(bundle("a", "b")) == "a"
    assert template_of(bundle(None, "b")) == "b"
