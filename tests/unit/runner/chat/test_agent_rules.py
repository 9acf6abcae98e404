"""What agents write anew with every request becomes the same; all other text stays."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.chat.agent_rules import RULES, with_agent_rules
from runner.server.generation import by_rules
from runner.types import GenerateRequest, Message

HEADER = "x-anthropic-billing-header: cc_version=2.1.330.3f1; cc_entrypoint=cli; cch={};"
NAMES = ("Bash", "Agent", "mcp__a__b", "Read")
TOOLS = tuple({"type": "function", "function": {"name": name}} for name in NAMES)
USER = Message("user", "hi")


def request(system: str, **fields: Any) -> GenerateRequest:
    return GenerateRequest(messages=(Message("system", system), USER), **fields)


def test_requests_that_differ_in_header_and_order_become_the_same() -> None:
    found = []
    for seed in range(8):
        rng = random.Random(seed)
        system = f"{HEADER.format(f'{rng.getrandbits(20):05x}')}\nYou code.\n"
        shuffled = tuple(rng.sample(TOOLS, len(TOOLS)))
        found.append(with_agent_rules(request(system, tools=shuffled)))
    assert {each.messages for each in found} == {(Message("system", "You code.\n"), USER)}
    orders = {tuple(tool["function"]["name"] for tool in each.tools) for each in found}
    assert orders == {("Agent", "Bash", "Read", "mcp__a__b")}
    assert {each.normalized for each in found} == {tuple(rule.name for rule in RULES)}


def test_only_what_was_changed_is_told() -> None:
    in_order = tuple(sorted(TOOLS, key=lambda tool: str(tool["function"]["name"])))
    for tools in ((), TOOLS[:1], in_order):
        changed = with_agent_rules(request(f"{HEADER.format('0')}\nx", tools=tools))
        assert changed.normalized == ("claude-code-billing-header",)
        assert changed.tools == tools


@pytest.mark.parametrize(
    "text",
    [
        "You code.",
        "You code.\n" + HEADER.format("0"),  # not its first line
        " " + HEADER.format("0"),
        "x-anthropic-billing-header: and what it is",
        HEADER.format("0") + " More of a sentence.",
        HEADER.format("0").removesuffix(";"),
        "x-anthropic-billing-header:",
        "X-Anthropic-Billing-Header: cch=0;",
    ],
)
def test_other_text_stays(text: str) -> None:
    asked = request(text, tools=TOOLS)
    assert with_agent_rules(asked) is asked


def test_what_is_no_system_message_stays() -> None:
    said = Message("user", HEADER.format("0"))
    asked = GenerateRequest(messages=(Message("system", "You code."), said), tools=TOOLS)
    assert with_agent_rules(asked) is asked
    assert with_agent_rules(GenerateRequest(text=HEADER.format("0"))).normalized == ()


def test_a_message_of_nothing_but_the_header_goes() -> None:
    header = Message("system", HEADER.format("0"))
    asked = GenerateRequest(messages=(header, Message("system", "You code."), USER))
    assert with_agent_rules(asked).messages == (Message("system", "You code."), USER)
    alone = GenerateRequest(messages=(header,))
    assert with_agent_rules(alone) is alone


@pytest.mark.parametrize("on", [True, False])
def test_a_setting_switches_them_off(on: bool) -> None:
    services: Any = SimpleNamespace(settings=SimpleNamespace(agent_rules=on))
    asked = request(f"{HEADER.format('0')}\nx", tools=TOOLS)
    changed = by_rules(services, asked)
    assert (changed is asked) is not on
    assert replace(changed, messages=(), tools=(), normalized=()) == replace(
        asked, messages=(), tools=()
    )


def test_each_rule_is_documented() -> None:
    page = (Path(__file__).parents[4] / "docs" / "api.md").read_text()
    for rule in RULES:
        assert f"| `{rule.name}` |" in page
