"""A tool that the daemon runs itself in the middle of a response: what the loop of generations, the
builder of the response and the tool know of one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runner.server.openai.call_arguments import read_arguments
from runner.server.openai.responses.result_room import ResultRoom


@dataclass(eq=False, slots=True)
class ServerCall:
    """A call of such a tool. id: the model's own; item: of the response; arguments: as the model
    wrote them."""

    tool: ServerTool
    id: str
    function: str
    item: dict[str, Any]
    arguments: str = ""

    @property
    def given(self) -> dict[str, Any] | None:
        """The arguments; None when they are no JSON object."""
        return read_arguments(self.arguments)


class ServerTool(Protocol):
    """A tool of a request."""

    begins: str | None  # the event that says that a call begins to run, where there is one

    @property
    def functions(self) -> Sequence[dict[str, Any]]:
        """What the model is offered."""

    def item(self, function: str) -> dict[str, Any]:
        """The item of a call that the model begins: its type, and what is special to it."""

    async def run(self, call: ServerCall, room: ResultRoom) -> str:
        """Make the call. Sets its item's status and result; returns the text for the model, which
        fits into its context."""
