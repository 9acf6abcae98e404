"""Tools of MCP servers in a conversation: offers them to the model, and calls what it asks for
after the person has agreed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cli.terminal import is_terminal, status
from runner.client import ClientError

if TYPE_CHECKING:
    from collections.abc import Generator

    from cli.answer import StreamedAnswer
    from runner.client import Client
    from runner.replies import JsonObject, ReplyChunk, ReplyMessage

    Chat = Callable[[Sequence[ReplyMessage]], Generator[ReplyChunk, None, None]]
    Show = Callable[[Generator[ReplyChunk, None, None]], StreamedAnswer]

MAX_ROUNDS = 16
_SHOWN_CHARS = 300
_REFUSED = "The user did not allow this call."
Ask = Callable[[str], str]


@dataclass(slots=True)
class Toolbox:
    """The tools of servers. ask: asks the user a question, None: no user to ask. allowed: tools
    that the user has allowed permanently."""

    client: Client
    ask: Ask | None
    tools: dict[str, JsonObject] = field(default_factory=dict)
    allowed: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, client: Client, servers: Sequence[str], ask: Ask | None) -> Toolbox:
        """The tools of servers that mcp.json names. Raises ClientError."""
        found = client.mcp_tools(servers)
        for problem in found.get("problems", ()):
            status(f"({problem})")
        return cls(client, ask, {tool["function"]: tool for tool in found["tools"]})

    @property
    def functions(self) -> list[dict[str, Any]]:
        """The tools as a request offers them."""
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": tool["description"],
                    "parameters": tool["parameters"],
                },
            }
            for name, tool in self.tools.items()
        ]

    def answer(self, call: dict[str, Any]) -> ReplyMessage:
        """The message for the model with what a call of it gave."""
        function = call.get("function") or {}
        name, arguments = str(function.get("name")), function.get("arguments") or {}
        message: ReplyMessage = {"role": "tool", "content": self._result(name, arguments)}
        message["tool_name"] = name
        if "id" in call:
            message["tool_call_id"] = call["id"]
        return message

    def answered(
        self, turns: list[ReplyMessage], chat: Chat, show: Show
    ) -> tuple[StreamedAnswer, list[ReplyMessage]]:
        """Show what chat gives for turns, with the calls that the model makes on its way to an
        answer; and the turns with all of it. Raises what chat and show do."""
        for _ in range(MAX_ROUNDS):
            answer = show(chat(turns))
            if not answer.calls or answer.stopped:
                break
            if answer.text:
                print()
            said: ReplyMessage = {"role": "assistant", "content": answer.text}
            said["tool_calls"] = answer.calls
            turns = [*turns, said, *map(self.answer, answer.calls)]
        else:
            status(f"(stopped after {MAX_ROUNDS} rounds of calls)")
        if answer.text and not answer.calls:
            turns = [*turns, {"role": "assistant", "content": answer.text}]
        return answer, turns

    def _result(self, name: str, arguments: dict[str, Any]) -> str:
        tool = self.tools.get(name)
        if tool is None:
            return f"There is no tool {name}."
        status(f"{tool['server']}: {tool['name']} {_shown(json.dumps(arguments))}")
        if not self._agreed(tool):
            return _REFUSED
        try:
            result = self.client.mcp_call(tool["server"], tool["name"], arguments)
        except ClientError as error:
            status(f"  {_shown(error.message)}")
            return f"The tool failed: {error.message}"
        status(f"  {'failed: ' if result['is_error'] else ''}{_shown(json.dumps(result['text']))}")
        return str(result["text"])

    def _agreed(self, tool: JsonObject) -> bool:
        if not tool["asks"] or tool["function"] in self.allowed:
            return True
        if self.ask is None:
            status('  not called: nobody can be asked here; "autoApprove" in mcp.json allows it')
            return False
        reply = self.ask("  call it? [y]es, [a]lways, [N]o: ").strip().lower()
        if reply in ("a", "always"):
            self.allowed.add(tool["function"])
        return reply in ("y", "yes", "a", "always")


def ask_terminal(question: str) -> str:
    """What the person answers at the terminal; nothing at the end of input."""
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()


def person() -> Ask | None:
    """How to ask the user at the terminal."""
    return ask_terminal if is_terminal(sys.stdin) and is_terminal(sys.stderr) else None


def _shown(text: str) -> str:
    """text in one line, without what a terminal would obey."""
    line = "".join(char if char.isprintable() else "?" for char in text)
    return line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + "..."
