"""The state of a slot on its way to the daemon or from it, piece by piece.

The daemon asks for each piece, so that neither side holds more than one beside the state itself.
There is one transfer at a time. What the daemon sends it has saved and checked itself: the state
goes to native code as it is.
"""

from __future__ import annotations

import base64
from array import array
from typing import Any

from runner.backends.backend import WritableState
from runner.engine.engine import Engine
from runner.engine.slots import SlotContent

Frame = dict[str, Any]


class SlotTransfer:
    """The actions of the op slot."""

    def __init__(self) -> None:
        self._state: WritableState | None = None

    def act(self, engine: Engine, frame: Frame) -> Frame:
        """On the engine's thread: save, begin, restore and erase. Raises HearthError."""
        action, slots = frame["action"], engine.slots
        if action == "begin":
            self._state = slots.new_state(int(frame["size"]), int(frame["tokens"]))
            return {}
        key = (str(frame["cache_salt"]), int(frame["slot"]))
        if action == "erase":
            return {"erased": slots.erase(key)}
        if action == "save":
            content = slots.save(key)
            self._state = content.state
            return {
                "tokens": content.tokens.tolist(),
                "adapters": content.adapters,
                "size": content.state.size_bytes,
            }
        if action == "restore" and self._state is not None:
            state, self._state = self._state, None
            adapters = tuple((str(name), float(scale)) for name, scale in frame["adapters"])
            slots.restore(key, SlotContent(array("i", frame["tokens"]), adapters, state))
            return {}
        raise ValueError(f"{action!r} is no action, or out of order")

    def move(self, frame: Frame) -> Frame:
        """read and write a piece; drop. Raises ValueError for one outside the state."""
        if frame["action"] == "drop":
            self._state = None
            return {}
        if self._state is None:
            raise ValueError("there is no state to read or write")
        memory, start = self._state.memory(), int(frame["start"])
        if frame["action"] == "read":
            piece = memory[start : start + int(frame["size"])]
            return {"data": base64.b64encode(piece).decode()}
        data = base64.b64decode(frame["data"])
        memory[start : start + len(data)] = data
        return {}
