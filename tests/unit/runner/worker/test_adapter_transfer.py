"""An adapter's bytes on their way into a worker."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from runner.errors import InvalidRequest
from runner.worker.adapter_transfer import AdapterTransfer


class Engine:
    """Remembers what was loaded."""

    def __init__(self) -> None:
        self.loaded: dict[str, bytes] = {}

    @property
    def adapters(self) -> Engine:
        """Those of the engine."""
        return self

    def load(self, name: str, path: Path) -> None:
        self.loaded[name] = path.read_bytes()

    def unload(self, name: str) -> None:
        del self.loaded[name]


def send(transfer: AdapterTransfer, size: int, *pieces: bytes | str) -> None:
    transfer.take({"action": "begin", "size": size})
    for piece in pieces:
        data: Any = piece if isinstance(piece, bytes) else base64.b64encode(piece.encode()).decode()
        transfer.take({"action": "write", "data": data})


def test_pieces_become_the_file_that_is_loaded() -> None:
    transfer, engine = AdapterTransfer(), Engine()
    send(transfer, 6, b"abc", "def")
    transfer.act(engine, {"action": "load", "name": "a"})  # type: ignore[arg-type]
    assert engine.loaded == {"a": b"abcdef"}
    transfer.take({"action": "drop"})
    transfer.act(engine, {"action": "unload", "name": "a"})  # type: ignore[arg-type]
    assert engine.loaded == {}


def test_what_is_not_complete_is_not_loaded() -> None:
    transfer, engine = AdapterTransfer(), Engine()
    for pieces in ((), (b"abc",)):
        send(transfer, 6, *pieces)
        with pytest.raises(InvalidRequest, match="not sent completely"):
            transfer.act(engine, {"action": "load", "name": "a"})  # type: ignore[arg-type]
    transfer.take({"action": "drop"})
    with pytest.raises(InvalidRequest, match="not sent completely"):
        transfer.act(engine, {"action": "load", "name": "a"})  # type: ignore[arg-type]


def test_what_is_out_of_order_or_too_much_is_refused() -> None:
    transfer = AdapterTransfer()
    with pytest.raises(ValueError, match="out of order"):
        transfer.take({"action": "write", "data": ""})
    with pytest.raises(ValueError, match="more bytes"):
        send(transfer, 2, b"abc")
    with pytest.raises(ValueError, match="no action"):
        transfer.take({"action": "other"})
