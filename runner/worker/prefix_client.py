"""A worker's side of the channels to the daemon's saved prefixes (runner.library.prefix_service).

Knows nothing of when saving or loading is worth it.
"""

from __future__ import annotations

import os
import socket
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from runner.memory_maps import shared
from runner.types import Adapters
from runner.worker.passed_files import opened
from runner.worker.prefix_channel import ChannelError, Message, pieces, receive, send


@dataclass(frozen=True, slots=True)
class FoundPart:
    """The first length of its tokens were asked for; rest are the others. token_s: the seconds that
    computing one took."""

    name: str
    length: int
    rest: tuple[int, ...]
    public: bool
    token_s: float

    @property
    def is_whole(self) -> bool:
        """Whether all of it was asked for."""
        return not self.rest


@dataclass(frozen=True, slots=True)
class Owner:
    """For whom tokens were computed, and how: what a prefix must have in common."""

    salt: str | None
    adapters: Adapters


@dataclass(frozen=True, slots=True)
class PartToSave:
    """The states of tokens that come after those of the part parent ("": of none)."""

    parent: str
    tokens: array[int]
    public: bool
    whole: bool
    token_s: float
    state: memoryview


class PrefixClient:
    """One channel. From any thread; all methods raise ChannelError once the daemon is gone."""

    def __init__(self, channel: socket.socket, computed_by: str) -> None:
        """computed_by: what the states depend on that the daemon does not know."""
        self._channel = channel
        self._lock = threading.Lock()
        self._ask({"op": "hello", "computed_by": computed_by})

    def find(self, tokens: array[int], owner: Owner) -> list[FoundPart]:
        """The parts that hold most of the beginning of tokens, but not all of it."""
        message = {"op": "find", "salt": owner.salt or "", "adapters": owner.adapters}
        reply, _ = self._ask(message, memoryview(tokens).cast("B"))
        return [
            FoundPart(
                str(part["name"]),
                int(part["length"]),
                tuple(part["rest"]),
                bool(part["public"]),
                float(part["token_s"]),
            )
            for part in reply["parts"]
        ]

    def open(self, name: str) -> memoryview | None:
        """A part's state, to be read only; None: it is gone or was damaged."""
        reply, file = self._ask({"op": "open", "name": name})
        file = opened(reply, file)
        if file is None:
            return None
        try:
            mapped = shared(file)
        except (OSError, ValueError):
            return None
        finally:
            os.close(file)
        return memoryview(mapped)[reply["offset"] : reply["offset"] + reply["bytes"]]

    def use(self, names: Sequence[str]) -> None:
        """These parts were of use."""
        self._ask({"op": "use", "names": list(names)})

    def save(self, part: PartToSave, owner: Owner) -> str | None:
        """Its name once it is saved; None: it was not."""
        message = {
            "op": "save",
            "salt": owner.salt or "",
            "adapters": owner.adapters,
            "parent": part.parent,
            "count": len(part.tokens),
            "public": part.public,
            "whole": part.whole,
            "token_s": part.token_s,
        }
        tokens = memoryview(part.tokens).cast("B")
        reply, _ = self._ask(message, tokens, part.state)
        return None if reply["name"] is None else str(reply["name"])

    def _ask(self, message: Message, *data: memoryview) -> tuple[Message, int | None]:
        with self._lock:
            try:
                send(self._channel, message, *data)
                received = receive(self._channel)
                if received is None:
                    raise ChannelError("the daemon has closed the channel")
                for _ in pieces(self._channel, received[0]["size"]):
                    pass
            except OSError as error:
                raise ChannelError(str(error)) from error
            return received
