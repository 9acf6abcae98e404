"""The state of a conversation: the model, the settings, what was said. Draws nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

    from runner.client import Client
    from runner.replies import Chunk, Turn


@dataclass(slots=True)
class Session:
    """One conversation with one model, as /set, /load and /clear change it."""

    client: Client
    model: str
    system: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    format: Any = None
    keep_alive: str | None = None
    word_wrap: bool = True
    verbose: bool = False
    history: bool = True
    think: bool | str | None = None
    show_thinking: bool = True
    turns: list[Turn] = field(default_factory=list)

    def ask(self, text: str) -> Generator[Chunk, None, None]:
        """The answer to one more message. Nothing is remembered until `remember`."""
        first: list[Turn] = [{"role": "system", "content": self.system}] if self.system else []
        messages: list[Turn] = [*first, *self.turns, {"role": "user", "content": text}]
        return self.client.chat(self._body() | {"messages": messages})

    def complete(self, text: str) -> Generator[Chunk, None, None]:
        """The answer to a single prompt, outside of the conversation."""
        system = {"system": self.system} if self.system else {}
        return self.client.generate(self._body() | {"prompt": text} | system)

    def remember(self, text: str, answer: str) -> None:
        """Add a question and its whole answer to the conversation."""
        self.turns += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": answer},
        ]

    def switch(self, model: str) -> None:
        """Load another model and start anew with it; when that fails nothing has changed."""
        self.client.load(model, self.keep_alive)
        self.model = model
        self.clear()

    def clear(self) -> None:
        """Forget what was said; the system message and the settings stay."""
        self.turns.clear()

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model}
        for name in ("options", "format", "keep_alive"):
            if value := getattr(self, name):
                body[name] = value
        if self.think is not None:
            body["think"] = self.think
        return body
