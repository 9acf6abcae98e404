"""Claude Code, as of 2.1.330, at Anthropic's messages: a header that changes with every request
begins its system prompt, cache_control wanders along, and notes of the program stand in the
conversation as system messages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar

from tests.agents.session import Call, Session, Size, Turn

CACHED = {"cache_control": {"type": "ephemeral"}}


class ClaudeCode(Session):
    """thoughts: words of thinking before each answer, which are sent back as they are. shuffled:
    the tools come in another order with every request."""

    path = "/v1/messages?beta=true"
    headers: ClassVar[dict[str, str]] = {
        "anthropic-version": "2023-06-01",
        "user-agent": "claude-cli/2.1.330 (external, cli)",
    }

    def __init__(
        self,
        model: str,
        seed: int,
        size: Size | None = None,
        *,
        thoughts: int = 0,
        shuffled: bool = True,
        choice: str | None = None,
    ) -> None:
        super().__init__(model, seed, size)
        self._thoughts = thoughts
        self._shuffled = shuffled
        self._choice = choice
        self._messages: list[dict[str, Any]] = []
        self._calls: list[Call] = []

    def begin_turn(self, told: str | None) -> None:
        content: list[dict[str, Any]] = [
            {
                "type": "tool_result",
                "tool_use_id": call.id,
                "content": self.result(),
                "is_error": False,
            }
            for call in self._calls
        ]
        if told is not None:
            note = f"<system-reminder>\n{self.words(8)}\n</system-reminder>"
            content += [{"type": "text", "text": note}, {"type": "text", "text": told}]
        self._messages.append({"role": "user", "content": content})
        if told is not None:
            left = f"<total_tokens>{900_000 - self.turn * 1000} tokens left</total_tokens>"
            self._messages.append({"role": "system", "content": left})

    def body(self) -> dict[str, Any]:
        tools = [
            {"name": each["name"], "description": each["description"],
             "input_schema": each["parameters"]}
            for each in self.tools
        ]  # fmt: skip
        if self._shuffled:
            self.rng.shuffle(tools)
        header = (
            "x-anthropic-billing-header: cc_version=2.1.330.3f1; cc_entrypoint=cli;"
            f" cch={self.rng.getrandbits(20):05x};"
        )
        body = {
            "model": self.model,
            "max_tokens": self.size.answer,
            "temperature": 0,
            "stream": True,
            "system": [
                {"type": "text", "text": header},
                {"type": "text", "text": "You work on the code of this folder.", **CACHED},
                {"type": "text", "text": self.system, **CACHED},
            ],
            "tools": tools,
            "messages": [*self._messages[:-1], _marked(self._messages[-1])],
            "metadata": {"user_id": "user_session"},
            "thinking": {"type": "adaptive"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        }
        if self._choice and (self.turn + 1) % self.size.loop:
            body["tool_choice"] = {"type": self._choice}
        return body

    def read(self, events: Iterable[dict[str, Any]], *, ends: bool) -> Turn:
        blocks: list[dict[str, Any]] = []
        usage: dict[str, Any] = {}
        for event in events:
            if event["type"] == "content_block_start":
                blocks.append(event["content_block"])
            elif event["type"] == "content_block_delta":
                for name, text in event["delta"].items():
                    if name in ("text", "thinking", "partial_json"):
                        blocks[-1][name] = blocks[-1].get(name, "") + text
            elif event["type"] == "message_delta":
                usage = event["usage"]
        self._keep(blocks, ends=ends)
        cached = usage["cache_read_input_tokens"]
        return Turn(usage["input_tokens"] + cached, cached, tuple(usage.get("normalized", ())))

    def _keep(self, blocks: list[dict[str, Any]], *, ends: bool) -> None:
        if self._thoughts and not any(block["type"] == "thinking" for block in blocks):
            thought = {"type": "thinking", "thinking": self.words(self._thoughts), "signature": ""}
            blocks.insert(0, thought)
        for block in blocks:
            if block["type"] == "tool_use":
                try:
                    block["input"] = json.loads(block.pop("partial_json", "{}"))
                except ValueError:  # cut by max_tokens
                    block["input"] = {}
            block.pop("citations", None)
        if not ends and not any(block["type"] == "tool_use" for block in blocks):
            call = self.scripted_call()
            given = json.loads(call.arguments)
            blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given})
        self._calls = [
            Call(block["id"], block["name"], "") for block in blocks if block["type"] == "tool_use"
        ]
        kept = [block for block in blocks if block.get("text") != ""]
        if kept:
            self._messages.append({"role": "assistant", "content": kept})


def _marked(message: dict[str, Any]) -> dict[str, Any]:
    """The last message as it is sent, with the marker that wanders along."""
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return {**message, "content": [*content[:-1], {**content[-1], **CACHED}]}
