"""LoRA adapters on their way into a running worker.

The daemon sends the bytes of an adapter, since the sandbox lets this process open no file that it
did not name at the start, and says when they are complete. There is one transfer at a time.
"""

from __future__ import annotations

from typing import IO, Any

from runner.engine.engine import Engine
from runner.errors import InvalidRequest
from runner.memory_file import memory_file, path_of
from runner.worker.json_codec import bytes_from_json

Frame = dict[str, Any]


class AdapterTransfer:
    """The actions of the op adapter."""

    def __init__(self) -> None:
        self._data: IO[bytes] | None = None
        self._left = 0  # bytes that are still to come

    def take(self, frame: Frame) -> Frame:
        """begin, write and drop. Raises ValueError for what is out of order."""
        match frame["action"]:
            case "begin":
                self._close()
                self._data, self._left = memory_file("adapter"), int(frame["size"])
            case "write" if self._data is not None:
                data = bytes_from_json(frame["data"])
                self._left -= len(data)
                if self._left < 0:
                    self._close()
                    raise ValueError("more bytes of an adapter than were announced")
                self._data.write(data)
            case "drop":
                self._close()
            case action:
                raise ValueError(f"{action!r} is no action, or out of order")
        return {}

    def act(self, engine: Engine, frame: Frame) -> Frame:
        """load and unload, on the engine's thread. Raises HearthError."""
        name = str(frame["name"])
        if frame["action"] == "unload":
            engine.adapters.unload(name)
            return {}
        if self._data is None or self._left:
            raise InvalidRequest(f"the adapter {name} was not sent completely")
        with path_of(self._data) as path:
            engine.adapters.load(name, path)
        return {}

    def _close(self) -> None:
        if self._data is not None:
            self._data.close()
            self._data = None
