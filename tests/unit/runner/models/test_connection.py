from __future__ import annotations

import asyncio
import base64
import secrets
import socket
import struct
from typing import Any

import pytest

from runner.models.connection import FrameConnection
from runner.worker.json_codec import LargeBytes
from runner.worker.protocol import MAX_FRAME_BYTES, ProtocolError, encode_frame, read_frame


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


@pytest.mark.parametrize("text", ["a", "\ud800"])  # the latter is no UTF-8
async def test_large_bytes_go_piece_by_piece_and_nothing_comes_between(text: str) -> None:
    ends = await Ends().open()
    images = [secrets.token_bytes(size) for size in (1 << 20, 200_001, 10, 3 << 16)]
    frames = [
        {"op": "generate", "text": text, "images": [LargeBytes(data) for data in images], "n": 7},
        {"op": "cancel", "text": text},
        {"op": "generate", "images": LargeBytes(images[0])},
        {"op": "stats"},
    ]
    for frame in frames:
        ends.connection.send(frame)
    reader, writer = await asyncio.open_connection(sock=ends.theirs, limit=1 << 16)
    found = [await asyncio.wait_for(read_frame(reader), 60) for _ in frames]
    coded = [base64.b64encode(data).decode() for data in images]
    assert found == [{**frames[0], "images": coded}, frames[1],
                     {"op": "generate", "images": coded[0]}, frames[3]]  # fmt: skip
    ends.connection.send({"op": "shutdown"})
    assert await asyncio.wait_for(read_frame(reader), 60) == {"op": "shutdown"}
    writer.close()
    assert await ends.lost is None


async def test_large_bytes_to_a_lost_connection_are_dropped() -> None:
    ends = await Ends().open()
    ends.connection.send({"op": "generate", "image": LargeBytes(bytes(8 << 20))})
    await asyncio.sleep(0)
    await ends.finish()
    ends.connection.send({"op": "generate", "image": LargeBytes(bytes(1 << 20))})
    await asyncio.wait_for(ends.connection.drained(), 60)


def test_a_frame_too_long_with_its_large_bytes_is_refused() -> None:
    connection = FrameConnection(lambda _: None, lambda _: None)
    with pytest.raises(ProtocolError, match="at most"):
        connection.send({"op": "generate", "image": LargeBytes(bytes(MAX_FRAME_BYTES * 3 // 4))})
    with pytest.raises(ProtocolError, match="cannot be JSON"):
        connection.send({"op": "generate", "image": object()})
