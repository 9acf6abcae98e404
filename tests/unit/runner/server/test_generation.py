"""What a request becomes for a leased model. Whole generations: tests/integration."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from modelfile.templates.chat_template import Capabilities
from registry.formats.gguf.fim import FimTokens
from runner.errors import InvalidRequest, Unsupported
from runner.models.capabilities import ModelCapabilities
from runner.server import generation, tool_format
from runner.server.generation import complete_prompt
from runner.types import GenerateRequest, Infill, Message, ToolChoice

USER = Message("user", "hi")
FUNCTION = {"name": "f", "parameters": {}, "strict": True, "lark": "start: A"}
TOOL = {"type": "function", "function": FUNCTION}


@pytest.fixture(autouse=True)
def _no_reasoning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "reasoning_tags", lambda lease: None)
    monkeypatch.setattr(
        generation, "template_capabilities", lambda bundle: Capabilities(insert=bundle.inserts)
    )
    monkeypatch.setattr(
        tool_format, "template_capabilities", lambda bundle: Capabilities(tools=bundle.tools)
    )


def lease(fim: FimTokens | None = None, **capabilities: bool) -> Any:
    bundle = SimpleNamespace(
        parser=None,
        name=SimpleNamespace(short="m"),
        system="Be kind.",
        messages=(),
        header=SimpleNamespace(fim=fim or FimTokens()),
        inserts=fim is None,
        tools=capabilities.get("tools", False),
    )
    able = SimpleNamespace(
        **{field.name: capabilities.get(field.name, False) for field in fields(ModelCapabilities)}
    )
    return SimpleNamespace(
        bundle=bundle,
        capabilities=able,
        parameters={},
        template="{{ messages }}",
        own_template="{{ messages }}",
    )


def test_a_template_sees_tools_without_what_is_for_grammars() -> None:
    request = GenerateRequest(messages=(USER,), tools=(TOOL,))
    shown = complete_prompt(lease(tools=True), request).tools
    assert shown == ({"type": "function", "function": {"name": "f", "parameters": {}}},)


def test_tools_of_which_the_template_knows_nothing_are_text_that_no_other_may_have() -> None:
    request = GenerateRequest(messages=(USER,), tools=(TOOL,))
    completed = complete_prompt(lease(), request)
    assert completed.tools_as_text
    assert "You can call functions." in (completed.messages or ())[-1].content
    assert generation._public_messages(request, completed) == 0
    native = replace(request, options={"tool_format": "generic"})
    assert complete_prompt(lease(tools=True), native).tools_as_text
    assert not complete_prompt(lease(tools=True), request).tools_as_text


def test_tools_that_may_not_be_called_are_not_shown_and_need_no_support() -> None:
    request = GenerateRequest(messages=(USER,), tools=(TOOL,), tool_choice=ToolChoice("none"))
    assert complete_prompt(lease(), request).tools == ()


def test_what_the_model_cannot_do_is_refused_by_name() -> None:
    for given, param in (
        ({"tools": (TOOL,), "options": {"tool_format": "native"}}, "tools"),
        ({"tools": (TOOL,), "options": {"tool_format": "none"}}, "tools"),
        ({"think": True}, "think"),
        ({"suffix": "x"}, "suffix"),
    ):
        with pytest.raises(Unsupported) as refusal:
            complete_prompt(lease(FimTokens()), GenerateRequest(messages=(USER,), **given))  # type: ignore[arg-type]
        assert refusal.value.details["param"] == param


def test_thinking_that_is_only_a_permission_is_dropped_where_there_is_none() -> None:
    request = GenerateRequest(messages=(USER,), think="high", think_if_able=True)
    assert complete_prompt(lease(), request).template_options == {}
    options = complete_prompt(lease(thinking=True), request).template_options
    assert options["reasoning_effort"] == "high"
    with pytest.raises(InvalidRequest, match="think='very'"):
        complete_prompt(lease(thinking=True), GenerateRequest(messages=(USER,), think="very"))


@pytest.mark.parametrize(
    ("own", "asked", "able", "think"),
    [
        ("false", None, False, False),
        ("false", None, True, False),
        ("false", True, False, True),
        ("true", None, False, True),
        ("low", None, False, "low"),
        (None, None, True, True),
        (None, None, False, None),
    ],
)
def test_a_modelfile_says_whether_to_think_where_a_request_does_not(
    own: str | None, asked: bool | None, able: bool, think: bool | str | None
) -> None:
    """able: as Ollama's clients leave it out."""
    leased = lease(thinking=True)
    leased.parameters = {"think": own}
    request = GenerateRequest(messages=(USER,), think=asked, think_if_able=able)
    assert complete_prompt(leased, request).think == think


def test_the_bundles_own_turns_come_first_unless_an_earlier_answer_has_them() -> None:
    request = GenerateRequest(messages=(USER,))
    assert complete_prompt(lease(), request).messages == (Message("system", "Be kind."), USER)
    again = GenerateRequest(messages=(USER,), preceding=(1, 2))
    assert complete_prompt(lease(), again).messages == (USER,)


def test_a_models_own_template_goes_along_unless_the_request_has_one() -> None:
    for given, used in ((None, "{{ messages }}"), ("mine", "mine")):
        request = GenerateRequest(messages=(USER,), template=given)
        assert complete_prompt(lease(), request).template == used


def test_a_suffix_is_a_variable_of_the_template() -> None:
    request = GenerateRequest(messages=(USER,), suffix="end")
    completed = complete_prompt(lease(insert=True), request)
    assert completed.template_options == {"suffix": "end"}
    assert completed.messages == (USER,)


def test_a_suffix_goes_by_the_vocabulary_where_the_template_has_no_place_for_it() -> None:
    fim = FimTokens({"pre": 1, "suf": 2, "mid": 3}, ("<mid>",), ())
    request = GenerateRequest(messages=(USER,), suffix="end")
    completed = complete_prompt(lease(fim, insert=True), request)
    assert completed.messages is None
    assert completed.infill == Infill("hi", "end", tokens=fim.ids, suffix_first=False)
    assert completed.kept_special_tokens == ("<mid>",)


def test_a_gap_needs_tokens_and_those_that_are_missing_are_named() -> None:
    request = GenerateRequest(infill=Infill("a", "b"))
    with pytest.raises(Unsupported, match=r"model: suffix token is missing\. middle token is mis"):
        complete_prompt(lease(FimTokens({"pre": 1}, (), ("suffix", "middle"))), request)
