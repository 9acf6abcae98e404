from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest

from runner.models.connection import FrameConnection
from runner.worker.protocol import MAX_FRAME_BYTES, ProtocolError, encode_frame


class Ends:
    """A connection with the other end as a plain socket."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self.lost: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.connection = FrameConnection(self.take, self.lost.set_result)
        self.theirs, self._ours = socket.socketpair()

    def take(self, frame: dict[str, Any]) -> None:
        if frame["op"] == "nonsense":
            raise ProtocolError("nonsense")
        self.frames.append(frame)

    async def open(self) -> Ends:
        self._ours.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self.connection, sock=self._ours)
        return self

    async def finish(self) -> str | None:
        self.theirs.close()
        return await self.lost


async def test_frames_cut_anywhere_arrive_whole_and_in_order() -> None:
    ends = await Ends().open()
    data = b"".join(encode_frame({"op": "step", "n": number}) for number in range(20))
    for start in range(0, len(data), 7):
        ends.theirs.sendall(data[start : start + 7])
        await asyncio.sleep(0)
    assert await ends.finish() is None
    assert [frame["n"] for frame in ends.frames] == list(range(20))


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", MAX_FRAME_BYTES + 1),
        struct.pack(">I", 3) + b"{{{",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 2) + b"{}",
        encode_frame({"op": "nonsense"}),
    ],
)
async def test_what_is_no_frame_ends_the_connection_with_the_reason(data: bytes) -> None:
    ends = await Ends().open()
    ends.theirs.sendall(encode_frame({"op": "step"}) + data)
    assert await ends.lost is not None
    assert len(ends.frames) == 1
    ends.theirs.close()


async def test_sending_after_the_end_is_no_error() -> None:
    ends = await Ends().open()
    await ends.finish()
    ends.connection.send({"op": "cancel", "id": "1"})


async def test_sent_frames_arrive() -> None:
    ends = await Ends().open()
    ends.connection.send({"op": "stats", "id": "1"})
    expected = encode_frame({"op": "stats", "id": "1"})
    assert ends.theirs.recv(1000) == expected
    await ends.finish()
