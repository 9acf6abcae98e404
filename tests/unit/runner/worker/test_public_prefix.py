from __future__ import annotations

from typing import Any

import pytest

from runner.types import GenerateRequest, Message
from runner.worker.prompts import PromptEncoder
from runner.worker.public_prefix import MAX_PREFIXES, PublicPrefixes
from tests.fake_backend import CHAT_TEMPLATE, FakeTokenizer

SYSTEM = Message("system", "Be kind.")
TOOLS = "{% if tools %}{{ tools[0].name }}{% endif %}"
SYSTEM_LAST = "{% for m in messages|reverse %}{{ m.content }};{% endfor %}"
ONE_ONLY = "{% if messages|length > 1 %}{{ raise_exception('one') }}{% endif %}x"


class Counted(PromptEncoder):
    encoded = 0

    def encode(self, request: GenerateRequest, max_tokens: int | None = None) -> list[int]:
        self.encoded += 1
        return super().encode(request, max_tokens)


def prompts(template: str | None = CHAT_TEMPLATE) -> Counted:
    return Counted(FakeTokenizer(), template)


def public(encoder: PromptEncoder, request: GenerateRequest) -> str:
    tokens = PromptEncoder.encode(encoder, request)
    count = PublicPrefixes(encoder).count(request, tokens)
    return "".join(FakeTokenizer().text(token) for token in tokens[:count])


def chat(*messages: Message, first: int = 1, **fields: Any) -> GenerateRequest:
    return GenerateRequest("x", messages=messages, public_messages=first, **fields)


@pytest.mark.parametrize("text", ["hi", "a", "0", "ab", "", "\n"])
def test_it_ends_where_the_question_begins(text: str) -> None:
    request = chat(SYSTEM, Message("user", text))
    whole = PromptEncoder.encode(prompts(), request)
    assert public(prompts(), request).endswith("Be kind.<|im_end|>\n<|im_start|>user\n")
    assert len(whole) > PublicPrefixes(prompts()).count(request, whole)
    plain = prompts(None)
    assert public(plain, request).endswith("Be kind.\n\n")


def test_examples_are_public_as_well() -> None:
    turns = (SYSTEM, Message("user", "one"), Message("assistant", "two"), Message("user", "three"))
    assert public(prompts(), chat(*turns, first=3)).endswith("two<|im_end|>\n<|im_start|>user\n")


def test_turns_of_the_client_are_not() -> None:
    assert public(prompts(), chat(SYSTEM, Message("user", "hi"), first=0)) == ""
    own = chat(SYSTEM, Message("user", "hi"), preceding=(1, 2))
    assert public(prompts(), own) == ""


def test_tools_are_public_only_where_the_prefix_is_shared() -> None:
    request = {"tools": ({"name": "secret"},)}
    turns = (SYSTEM, Message("user", "hi"))
    template = f"first;{TOOLS}{CHAT_TEMPLATE}"
    assert "secret" not in public(prompts(template), chat(*turns, **request))
    assert "secret" in public(prompts(template), chat(*turns, **request, shared_prefix=True))


def test_a_template_that_puts_them_last_or_refuses_them_shares_nothing_of_a_client() -> None:
    assert "h" not in public(prompts(SYSTEM_LAST), chat(SYSTEM, Message("user", "hi")))
    only = GenerateRequest("x", messages=(Message("user", "hi"),), public_messages=1)
    assert public(prompts(ONE_ONLY), only) == ""


def test_a_text_is_public_when_it_is_shared() -> None:
    assert public(prompts(), GenerateRequest("x", text="hi")) == ""
    assert public(prompts(), GenerateRequest("x", text="hi", shared_prefix=True)).endswith("hi")


def test_it_is_rendered_once_for_all_requests() -> None:
    encoder = prompts()
    prefixes = PublicPrefixes(encoder)
    for number in range(10):
        assert prefixes.count(chat(SYSTEM, Message("user", str(number))), [1, 2, 3]) == 0
    assert encoder.encoded == 2
    for number in range(2 * MAX_PREFIXES):
        prefixes.count(chat(Message("system", str(number)), SYSTEM), [1])
    assert len(prefixes._known) == MAX_PREFIXES
