"""Codex, as of 0.169, at OpenAI's responses: nothing is stored, so all items come again, reasoning
among them; the environment is a message of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from tests.agents.session import Session, Size, Turn


class Codex(Session):
    """choice: tool_choice where the model shall call."""

    path = "/v1/responses"
    headers: ClassVar[dict[str, str]] = {"user-agent": "codex_cli_rs/0.169.0"}

    def __init__(
        self, model: str, seed: int, size: Size | None = None, *, choice: str | None = None
    ) -> None:
        super().__init__(model, seed, size)
        self._choice = choice
        self._key = f"{self.rng.getrandbits(64):016x}"
        environment = (
            "<environment_context>\n  <cwd>/home/me/project</cwd>\n  <shell>bash</shell>\n"
            "  <current_date>2026-11-23</current_date>\n</environment_context>"
        )
        self._items = [
            _said("developer", self.words(30)),
            _said("user", environment),
        ]

    def begin_turn(self, told: str | None) -> None:
        if told is not None:
            self._items.append(_said("user", told))

    def body(self) -> dict[str, Any]:
        tools = [{"type": "function", "strict": False, **each} for each in self.tools]
        forced = self._choice and (self.turn + 1) % self.size.loop
        return {
            "model": self.model,
            "instructions": self.system,
            "input": self._items,
            "tools": tools,
            "tool_choice": self._choice if forced else "auto",
            "parallel_tool_calls": True,
            "reasoning": {"summary": "auto"},
            "max_output_tokens": self.size.answer,
            "temperature": 0,
            "store": False,
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": self._key,
            "client_metadata": {"turn_id": f"{self.rng.getrandbits(64):016x}"},
        }

    def read(self, events: Iterable[dict[str, Any]], *, ends: bool) -> Turn:
        *_, last = events
        response = last["response"]
        # A call that is cut has no arguments that could be sent back.
        output = [item for item in response["output"] if item.get("status") != "incomplete"
                  or item["type"] == "message"]  # fmt: skip
        calls = [item for item in output if item["type"] == "function_call"]
        if not ends and not calls:
            call = self.scripted_call()
            calls = [{"type": "function_call", "call_id": call.id, "name": call.name,
                      "arguments": call.arguments}]  # fmt: skip
            output += calls
        self._items += [{**item, "status": "completed"} if "status" in item else item
                        for item in output]  # fmt: skip
        self._items += [
            {"type": "function_call_output", "call_id": item["call_id"], "output": self.result()}
            for item in calls
        ]
        usage = response["usage"]
        cached = usage["input_tokens_details"]["cached_tokens"]
        return Turn(usage["input_tokens"], cached, tuple(usage.get("normalized", ())))


def _said(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
