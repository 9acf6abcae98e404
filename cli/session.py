"""The state of a conversation: the model, the settings, what was said. Draws nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from runner.client import Client
    from runner.replies import ReplyChunk, ReplyMessage


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
    turns: list[ReplyMessage] = field(default_factory=list)

    @property
    def sees(self) -> bool:
        """Whether the model reads images."""
        return "vision" in (self.client.show(self.model).get("capabilities") or ())

    def ask(self, text: str, images: Sequence[str] = ()) -> Generator[ReplyChunk, None, None]:
        """The answer to one more message; images: base64. Nothing is remembered until
        `remember`."""
        first: list[ReplyMessage] = (
            [{"role": "system", "content": self.system}] if self.system else []
        )
        messages: list[ReplyMessage] = [*first, *self.turns, _said(text, images)]
        return self.client.chat(self._body() | {"messages": messages})

    def complete(self, text: str, images: Sequence[str] = ()) -> Generator[ReplyChunk, None, None]:
        """The answer to a single prompt, outside of the conversation; images: base64."""
        body = self._body() | {"prompt": text}
        if self.system:
            body["system"] = self.system
        if images:
            body["images"] = list(images)
        return self.client.generate(body)

    def remember(self, text: str, answer: str, images: Sequence[str] = ()) -> None:
        """Add a question and its whole answer to the conversation."""
        self.turns += [_said(text, images), {"role": "assistant", "content": answer}]

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


def _said(text: str, images: Sequence[str]) -> ReplyMessage:
    """A message of the user."""
    turn: ReplyMessage = {"role": "user", "content": text}
    if images:
        turn["images"] = list(images)
    return turn
