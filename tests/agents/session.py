"""What the sessions of all agents share: made-up texts, and what a turn cost.

An agent sends the whole conversation with every request. What the model answers goes into the next
one as it came; where it calls no tool though the script wants a call, the agent goes on as if it
had made one. All texts come from a seed.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

import httpx

_SYLLABLES = [
    "ka",
    "lo",
    "mi",
    "ter",
    "ven",
    "sal",
    "dor",
    "pra",
    "qui",
    "nes",
    "ful",
    "bor",
    "tan",
    "gri",
    "ush",
    "el",
]


@dataclass(frozen=True, slots=True)
class Size:
    """How much an agent says, in words, and how many tools it has. loop: requests between two
    messages of the user; answer: tokens of an answer."""

    system: int = 1200
    tools: int = 12
    description: int = 30
    told: int = 20
    result: int = 40
    loop: int = 4
    answer: int = 40


@dataclass(frozen=True, slots=True)
class Turn:
    """What usage says of a request."""

    prompt: int
    cached: int
    normalized: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """How much of all the prompt's tokens came from the cache."""
        return self.cached / self.prompt


@dataclass(frozen=True, slots=True)
class Call:
    """A call that an answer makes, or that the script makes in its place."""

    id: str
    name: str
    arguments: str


class Session(ABC):
    """One conversation of one agent."""

    path: str
    headers: ClassVar[dict[str, str]]

    def __init__(self, model: str, seed: int, size: Size | None = None) -> None:
        self.model = model
        self.size = size or Size()
        self.rng = Random(f"{type(self).__name__} {seed}")
        self.turn = 0
        self.system = self.words(self.size.system)
        self.tools = [self._tool(at) for at in range(self.size.tools)]

    def words(self, count: int) -> str:
        """So many made-up words."""
        return " ".join("".join(self.rng.choices(_SYLLABLES, k=2)) for _ in range(count))

    def ask(self, client: httpx.Client) -> Turn:
        """Send the next request, read its stream, and take what came into the conversation."""
        self.begin_turn(self.words(self.size.told) if self.turn % self.size.loop == 0 else None)
        reply = client.post(self.path, json=self.body(), headers=self.headers)
        assert reply.status_code == 200, reply.text
        events = [
            json.loads(line.removeprefix("data: "))
            for line in reply.text.splitlines()
            if line.startswith("data: {")
        ]
        self.turn += 1
        return self.read(events, ends=self.turn % self.size.loop == 0)

    @abstractmethod
    def begin_turn(self, told: str | None) -> None:
        """told: what the user says; None: the tools have answered, and the agent goes on."""

    @abstractmethod
    def body(self) -> dict[str, Any]:
        """The request."""

    @abstractmethod
    def read(self, events: Iterable[dict[str, Any]], *, ends: bool) -> Turn:
        """Take an answer into the conversation. ends: the user speaks next; else its calls are
        answered, or one of the script."""

    def scripted_call(self) -> Call:
        """A call for an answer that has none."""
        arguments = json.dumps({"path": self.words(1), "text": self.words(4)})
        name = self.rng.choice(self.tools)["name"]
        return Call(f"call_{self.rng.getrandbits(32):08x}", name, arguments)

    def result(self) -> str:
        """What a tool answers."""
        return self.words(self.size.result)

    def _tool(self, at: int) -> dict[str, Any]:
        text = {"type": "string", "description": self.words(4)}
        return {
            "name": f"{self.words(1)}_{at}",
            "description": self.words(self.size.description),
            "parameters": {
                "type": "object",
                "properties": {"path": text, "text": text},
                "required": ["path"],
                "additionalProperties": False,
            },
        }


def least_share(turns: Iterable[Turn]) -> float:
    """The smallest share of a prompt that came from the cache, from the second turn on."""
    return min(turn.share for turn in list(turns)[1:])
