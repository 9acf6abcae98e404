"""The state of a conversation: the model, the settings, the messages. Draws nothing."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from cli.tool_calls import Toolbox
    from runner.client import Client
    from runner.replies import ReplyChunk, ReplyMessage


@dataclass(slots=True)
class Session:
    """One conversation with one model, as /set, /load and /clear change it. own: the model's own
    messages, with which every conversation begins. alone: each message goes to the model without
    the others; raw: and without a template. progress: have chunks say how far a prompt is.
    toolbox: tools that the model may call. told: the daemon's last warning."""

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
    alone: bool = False
    raw: bool = False
    progress: bool = False
    toolbox: Toolbox | None = None
    told: str = ""
    own: list[ReplyMessage] = field(default_factory=list)
    turns: list[ReplyMessage] = field(default_factory=list)

    def can(self, capability: str) -> bool:
        """Whether the model has a capability of /api/show, such as vision or thinking."""
        return capability in (self.client.show(self.model).get("capabilities") or ())

    def load(self) -> ReplyChunk:
        """Bring the model into memory, as the next message needs it; the daemon's answer."""
        return self.client.load(self.model, self.keep_alive, self.options)

    def ask(self, text: str, images: Sequence[str] = ()) -> Generator[ReplyChunk, None, None]:
        """The answer to one more message; images: base64. Nothing is remembered until
        `remember`."""
        if self.alone:
            return self.complete(text, images)
        return self.chat(self.asked(text, images))

    def chat(self, turns: Sequence[ReplyMessage]) -> Generator[ReplyChunk, None, None]:
        """What the model says after turns, which may be calls of tools."""
        # The daemon puts the model's own messages before those without a system message only.
        first: list[ReplyMessage] = (
            [{"role": "system", "content": self.system}, *self.own] if self.system else []
        )
        body = self._body() | {"messages": [*first, *turns]}
        if self.toolbox is not None:
            body["tools"] = self.toolbox.functions
        return self.client.chat(body)

    def complete(self, text: str, images: Sequence[str] = ()) -> Generator[ReplyChunk, None, None]:
        """The answer to a single prompt, outside of the conversation; images: base64."""
        body = self._body() | {"prompt": text}
        if self.raw:
            body["raw"] = True
        if self.system:
            body["system"] = self.system
        if images:
            body["images"] = list(images)
        return self.client.generate(body)

    def remember(self, text: str, answer: str, images: Sequence[str] = ()) -> None:
        """Add a question and what came of its answer to the conversation."""
        self.turns = self.asked(text, images)
        if answer:
            self.turns.append({"role": "assistant", "content": answer})

    def switch(self, model: str) -> ReplyChunk:
        """Load another model and start again with it and its own system message; if that fails,
        nothing changes. Returns the daemon's answer."""
        loaded = self.client.load(model, self.keep_alive, self.options)
        self.model = model
        self.system, self.told = None, ""
        self.clear()
        return loaded

    def clear(self) -> None:
        """Forget what was said; the system message and the settings stay."""
        self.turns.clear()

    def save(self, name: str) -> None:
        """Make a model of this one, the system message, the parameters and what was said, without
        images. One of that name is replaced."""
        said = [
            {"role": turn["role"], "content": turn["content"]}
            for turn in self.turns
            if turn["role"] != "tool" and "tool_calls" not in turn
        ]
        body = {
            "model": name,
            "from": self.model,
            "system": self.system,
            "parameters": self.options,
            "messages": [*self.own, *said],
        }
        with closing(self.client.create(body)) as lines:
            for _ in lines:
                pass

    def asked(self, text: str, images: Sequence[str]) -> list[ReplyMessage]:
        """The turns with a message of the user at the end. It continues one that got no answer:
        templates want the roles to alternate."""
        turn: ReplyMessage = {"role": "user", "content": text}
        if images:
            turn["images"] = list(images)
        if not self.turns or self.turns[-1]["role"] != "user":
            return [*self.turns, turn]
        *earlier, last = self.turns
        together: ReplyMessage = {"role": "user", "content": f"{last['content']}\n\n{text}"}
        if pictures := [*last.get("images", ()), *images]:
            together["images"] = pictures
        return [*earlier, together]

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model}
        for name in ("options", "format", "keep_alive"):
            if value := getattr(self, name):
                body[name] = value
        if self.think is not None:
            body["think"] = self.think
        if self.progress:
            body["return_progress"] = True
        return body
