"""A parsed Modelfile: its commands in order. Knows nothing of text and of what they do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

INSTRUCTIONS: Final = (
    *("from", "license", "template", "system", "adapter", "draft", "renderer", "parser"),
    *("parameter", "message", "requires"),
)
ROLES: Final = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Command:
    """One instruction. word: the parameter's name or the message's role, None for the others.
    line and column, from 1, do not count when commands are compared."""

    instruction: str
    value: str
    word: str | None = None
    line: int = field(default=0, compare=False)
    column: int = field(default=1, compare=False)

    @property
    def name(self) -> str:
        """What Ollama calls the command: "model" for FROM, a parameter's own name."""
        if self.instruction == "parameter":
            return self.word or ""
        return "model" if self.instruction == "from" else self.instruction

    @property
    def args(self) -> str:
        """What Ollama calls its arguments: "user: text" for MESSAGE."""
        return f"{self.word}: {self.value}" if self.instruction == "message" else self.value


@dataclass(frozen=True, slots=True)
class Modelfile:
    """The commands of a Modelfile. Repeated FROM, LICENSE, MESSAGE and PARAMETER stop add up; of
    the others the last one counts."""

    commands: tuple[Command, ...]

    def values(self, instruction: str) -> tuple[str, ...]:
        """The values of every command of an instruction, in order."""
        return tuple(c.value for c in self.commands if c.instruction == instruction)

    def last(self, instruction: str) -> str | None:
        """The value that counts, None when the instruction does not occur."""
        values = self.values(instruction)
        return values[-1] if values else None

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """(role, text) of every MESSAGE."""
        found = (c for c in self.commands if c.instruction == "message")
        return tuple((c.word or "", c.value) for c in found)

    @property
    def parameters(self) -> tuple[Command, ...]:
        """Every PARAMETER, in order; the values are still text."""
        return tuple(c for c in self.commands if c.instruction == "parameter")
