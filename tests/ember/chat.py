"""Renders conversations with the chat template that is shipped in the GGUF, and finds the
assistant's parts.

The training reads exactly what the model will be given: the same template, rendered the same way.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.ember.exchange import Conversation, Json

TEMPLATE_PATH = Path(__file__).with_name("chat_template.jinja")
IM_START = "<|im_start|>"
IM_END = "<|im_end|>"
ASSISTANT = f"{IM_START}assistant\n"


def _tojson(value: Json, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, **options)


@cache
def template(sort_keys: bool = False) -> Template:
    """The chat template, compiled the way chat runtimes compile such templates."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, **options: _tojson(
        value, sort_keys=sort_keys, **options
    )
    return environment.from_string(TEMPLATE_PATH.read_text())


def render(
    messages: list[dict[str, Json]],
    tools: list[dict[str, Json]] | None = None,
    *,
    generate: bool = False,
    sort_keys: bool = False,
) -> str:
    """The prompt text of `messages`; with `generate` it ends where the assistant
    starts to write.
    """
    return template(sort_keys).render(
        messages=messages, tools=tools or None, add_generation_prompt=generate
    )


def segments(conversation: Conversation, *, sort_keys: bool = False) -> list[tuple[str, bool]]:
    """The rendered conversation in pieces `(text, learned)`; learned pieces are what the assistant
    writes, with <|im_end|>.
    """
    text = render(
        [turn.message(breaks=True) for turn in conversation.turns],
        list(conversation.tools),
        sort_keys=sort_keys,
    )
    pieces: list[tuple[str, bool]] = []
    head, *answers = text.split(ASSISTANT)
    pieces.append((head, False))
    for answer in answers:
        written, rest = answer.split(IM_END, 1)
        pieces += [(ASSISTANT, False), (written + IM_END, True), (rest, False)]
    return [(piece, learned) for piece, learned in pieces if piece]
