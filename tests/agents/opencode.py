"""opencode, at OpenAI's chat completions: folder and date stand in the system prompt, and a session
begins with a request for its title, of another system prompt and without tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import httpx

from tests.agents.session import Session, Size, Turn


class OpenCode(Session):
    """choice: tool_choice where the model shall call."""

    path = "/v1/chat/completions"
    headers: ClassVar[dict[str, str]] = {"user-agent": "opencode/1.14.19"}

    def __init__(
        self, model: str, seed: int, size: Size | None = None, *, choice: str | None = None
    ) -> None:
        super().__init__(model, seed, size)
        self._choice = choice
        environment = (
            "<env>\n  Working directory: /home/me/project\n  Is directory a git repo: yes\n"
            "  Platform: linux\n  Today's date: Mon Nov 23 2026\n</env>"
        )
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": f"{self.system}\n{environment}"}
        ]

    def ask_title(self, client: httpx.Client) -> None:
        """The request beside the conversation."""
        messages = [
            {"role": "system", "content": self.words(60)},
            {"role": "user", "content": self.words(self.size.told)},
        ]
        body = {"model": self.model, "max_tokens": 8, "messages": messages}
        assert client.post(self.path, json=body, headers=self.headers).status_code == 200

    def begin_turn(self, told: str | None) -> None:
        if told is not None:
            self._messages.append({"role": "user", "content": told})

    def body(self) -> dict[str, Any]:
        forced = self._choice and (self.turn + 1) % self.size.loop
        return {
            "model": self.model,
            "max_tokens": self.size.answer,
            "temperature": 0,
            "messages": self._messages,
            "tools": [{"type": "function", "function": each} for each in self.tools],
            "tool_choice": self._choice if forced else "auto",
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def read(self, events: Iterable[dict[str, Any]], *, ends: bool) -> Turn:
        text, reason, usage = "", None, {}
        calls: dict[int, dict[str, Any]] = {}
        for event in events:
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                reason = choice["finish_reason"] or reason
                text += choice["delta"].get("content") or ""
                for piece in choice["delta"].get("tool_calls", ()):
                    _add(calls, piece)
        made = list(calls.values()) if reason == "tool_calls" else []
        if not ends and not made:
            call = self.scripted_call()
            function = {"name": call.name, "arguments": call.arguments}
            made = [{"id": call.id, "type": "function", "function": function}]
        answer: dict[str, Any] = {"role": "assistant", "content": text}
        self._messages.append(answer | ({"tool_calls": made} if made else {}))
        self._messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": self.result()} for call in made
        ]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return Turn(usage["prompt_tokens"], cached, tuple(usage.get("normalized", ())))


def _add(calls: dict[int, dict[str, Any]], piece: dict[str, Any]) -> None:
    """Take a piece of a call."""
    empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
    call = calls.setdefault(piece["index"], empty)
    call["id"] = piece.get("id") or call["id"]
    for name, value in piece["function"].items():
        call["function"][name] += value
