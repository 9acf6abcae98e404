"""Prompts of published models, byte for byte as transformers makes them of the same template."""

from __future__ import annotations

import copy
import json
from typing import Any

import httpx
import pytest

from registry.formats.gguf import read_header
from tests.real.conftest import AskOracle, Model, require
from tests.real.conversations import CONVERSATIONS, Message

pytestmark = pytest.mark.slow

ASKED = tuple(
    {**conversation, "add_generation_prompt": generates}
    for conversation in CONVERSATIONS
    for generates in (True, False)
)


@pytest.mark.parametrize("name", ["smollm2", "qwen-coder-0.5b", "qwen-coder-1.5b"])
def test_prompts_are_those_of_transformers(
    http: httpx.Client, installed: Model, ask_oracle: AskOracle, name: str
) -> None:
    metadata = read_header(require(name)).metadata
    template = metadata["tokenizer.chat_template"]
    # One that knows no tools gets them in a system message of hearth's
    asked_for = [each for each in ASKED if "tools" in template or "tools" not in each]
    words = metadata["tokenizer.ggml.tokens"].load()
    wanted = ask_oracle(
        "templates",
        template=template,
        bos_token=words[metadata["tokenizer.ggml.bos_token_id"]],
        eos_token=words[metadata["tokenizer.ggml.eos_token_id"]],
        conversations=asked_for,
    )
    model = installed(name)
    different = []
    for asked, prompt in zip(asked_for, wanted, strict=True):
        body = {"model": model, "messages": in_openai_shape(asked["conversation"])}
        body |= {key: asked[key] for key in ("tools", "add_generation_prompt") if key in asked}
        answer = http.post("/apply-template", json=body)
        found = answer.json()["prompt"] if answer.status_code == 200 else None
        if found != prompt:
            different.append((asked, prompt, found if found is not None else answer.text))
    print(f"{name}: {len(asked_for) - len(different)} of {len(asked_for)} prompts are the same")
    assert different == []


def in_openai_shape(messages: list[Message]) -> list[dict[str, Any]]:
    """The messages with the arguments of calls as text."""
    found = copy.deepcopy(messages)
    for call in (call for message in found for call in message.get("tool_calls", ())):
        call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return found
