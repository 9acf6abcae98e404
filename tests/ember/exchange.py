"""The unit of training data: one exchange, what it must contain to count as right, and what is held
out.

An exchange is drawn for a split: "train" or "eval". `held_out` decides by hash which keys belong to
the evaluation, so the two splits can never share a key, whatever the seeds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

Json = Any
Split = Literal["train", "eval"]
Check = Literal["value", "ending", "exact", "number", "json", "call", "no_call", "unknown", "story"]

LETTER_BREAK = "\u2060"
"""A word joiner between two letters of an answer: the training cuts tokens there and drops it.

A word that nobody knows is written letter by letter instead of in the pieces that the tokenizer
would choose. No reader ever sees the mark."""
HELD_OUT_IN = 10
"""One key in this many belongs to the evaluation."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call: the tool's name and its arguments."""

    name: str
    arguments: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message; `calls` only on assistant turns."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    calls: tuple[Call, ...] = ()

    def message(self, *, breaks: bool = False) -> dict[str, Json]:
        """The turn as an OpenAI chat message; `breaks` keeps the marks between letters."""
        content = self.content if breaks else self.content.replace(LETTER_BREAK, "")
        if not self.calls:
            return {"role": self.role, "content": content}
        calls = [
            {"type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in self.calls
        ]
        return {"role": self.role, "content": content or None, "tool_calls": calls}


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer, before tone, system message and neighbours are put around it.

    `short` is the bare value of the answer, what a brief persona says and what the evaluation looks
    for.
    `fixed` answers keep their exact form under any tone (JSON); `worked` ones need their working to
    be right,
    so even a brief persona shows it.
    """

    question: str
    answer: str
    short: str
    key: str
    check: Check = "value"
    fixed: bool = False
    worked: bool = False
    follow_ups: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """A whole training sample: tools offered and turns, with what the last answer must hold."""

    skill: str
    turns: tuple[Turn, ...]
    key: str
    check: Check
    value: str
    tools: tuple[dict[str, Json], ...] = ()
    calls: tuple[Call, ...] = field(default=())

    @property
    def prompt(self) -> str:
        """Everything the model reads before its last answer, for overlap checks."""
        return "\n".join(f"{turn.role}: {turn.content}" for turn in self.turns[:-1])


def normalise(text: str) -> str:
    """Lower case, single spaces, no closing punctuation: two spellings of one question
    are equal.
    """
    return re.sub(r"\s+", " ", text.lower()).strip(" .?!")


def held_out(key: str) -> bool:
    """Whether `key` belongs to the evaluation."""
    digest = hashlib.blake2b(normalise(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % HELD_OUT_IN == 0


def draw(rng: Random, split: Split, generate: Callable[[Random], Exchange]) -> Exchange:
    """Generate until the key is on the side of `split`."""
    while True:
        exchange = generate(rng)
        if held_out(exchange.key) == (split == "eval"):
            return exchange


_CHOICE = re.compile(r"\(([^()]*)\)")


def phrase(rng: Random, pattern: str, **slots: object) -> str:
    """Expand `(a|b|)` alternatives, innermost first, then fill `{slots}`."""
    while match := _CHOICE.search(pattern):
        pattern = (
            pattern[: match.start()]
            + rng.choice(match.group(1).split("|"))
            + pattern[match.end() :]
        )
    return re.sub(r"\s+", " ", pattern.format(**slots)).strip()


def sentence(text: str) -> str:
    """`text` with a capital first letter, unless it starts with a name that is written small."""
    return text if text.startswith(("hearth", "ember")) else text[:1].upper() + text[1:]
