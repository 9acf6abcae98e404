"""What the daemon reads from a bundle's template."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from modelfile.templates.renderers import renderer_source
from registry.bundle import Bundle
from registry.formats.gguf.fim import FimTokens
from registry.names import Name
from runner.errors import ModelInvalid
from runner.models.capabilities import model_capabilities, template_of
from runner.models.model_files import model_files


def bundle(
    template: str | None, own: str | None = None, renderer: str | None = None, **metadata: Any
) -> Bundle:
    """A bundle with its TEMPLATE, the template of the model file and its RENDERER."""
    header = SimpleNamespace(
        architecture="llama",
        is_embedding=False,
        is_speech=False,
        chat_template=own,
        metadata=metadata,
        fim=FimTokens(),
    )
    fields = {"template": template, "header": header, "renderer": renderer, "projector": None}
    return cast(Bundle, SimpleNamespace(name=Name.parse("m"), **{"parameters": {}, **fields}))


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
    assert model_capabilities(bundle(template, own)).names() == expected


def test_a_template_of_its_own_for_tools_makes_the_model_take_them() -> None:
    named = {"tokenizer.chat_template.tool_use": "{{ tools }}"}
    assert model_capabilities(bundle(None, "{{ messages }}", **named)).tools
    assert not model_capabilities(bundle("{{ .Prompt }}", "{{ messages }}", **named)).tools


def test_the_bundles_template_comes_before_the_files() -> None:
    assert template_of(bundle("a", "b")) == "a"
    assert template_of(bundle(None, "b")) == "b"


def test_a_renderer_comes_before_both_templates() -> None:
    model = bundle("a", "b", "qwen3-coder")
    assert template_of(model) == renderer_source("qwen3-coder")
    assert "tools" in model_capabilities(model).names()


def test_a_model_whose_prompts_cannot_be_written_is_told_by_the_renderers_name() -> None:
    with pytest.raises(ModelInvalid, match="m needs the renderer ornith, which is not built in"):
        model_files(bundle("{{ .Prompt }}", None, "ornith"))


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        (["cls.weight", "cls.output.weight"], ["rerank"]),
        (["cls.output.weight"], ["rerank"]),
        (["token_embd.weight"], ["embedding"]),
    ],
)
def test_only_with_its_head_a_model_ranks(tensors: list[str], expected: list[str]) -> None:
    header = SimpleNamespace(
        architecture="bert",
        is_embedding=True,
        is_speech=False,
        chat_template=None,
        metadata={},
        tensors=[SimpleNamespace(name=name) for name in tensors],
        architecture_value={"pooling_type": 4}.get,
    )
    model = SimpleNamespace(
        name=Name.parse("m"), template=None, header=header, renderer=None, parameters={}
    )
    assert model_capabilities(cast(Bundle, model)).names() == expected
