from __future__ import annotations

import asyncio
import gc
import secrets
import socket
import struct
import sys
from typing import Any

import pytest

from runner.models.connection import FrameConnection
from runner.worker.frame_reader import FrameReader
from runner.worker.json_codec import Large
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


async def test_nothing_of_a_frame_stays_after_it_was_read() -> None:
    ends = await Ends().open()

    async def kept(first: int, count: int) -> int:
        gc.collect()
        before = sys.getallocatedblocks()
        for number in range(first, first + count):
            ends.theirs.sendall(encode_frame({"op": "step", "id": f"request {number}"}))
            while not ends.frames:  # noqa: ASYNC110
                await asyncio.sleep(0)
            ends.frames.clear()
        gc.collect()
        return sys.getallocatedblocks() - before

    await kept(0, 10)
    assert await kept(10, 1000) < 100
    assert await kept(1010, 2000) < 100
    await ends.finish()


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
async def test_large_values_go_piece_by_piece_and_what_is_of_the_same_request_after_them(
    text: str,
) -> None:
    ends = await Ends().open()
    values = [secrets.token_bytes(size) for size in (1 << 20, 200_001, 10, 3 << 16)]
    texts = ["\U0001f600" + "a" * (1 << 20), "\n" * 300_000, text * 100_000]
    large: list[str | bytes] = [*values, *texts]
    frames = [
        {"op": "generate", "id": "a", "text": text, "large": [*map(Large, large)], "n": 7},
        {"op": "pause", "id": "a", "text": text},
        {"op": "generate", "id": "b", "large": Large(values[0])},
        {"op": "generate", "id": "c", "json": [text] * 100_000},
    ]
    for frame in frames:
        ends.connection.send(frame)
    stream, writer = await asyncio.open_connection(sock=ends.theirs, limit=1 << 16)
    reader = FrameReader(stream)
    found = [await asyncio.wait_for(reader.read(), 60) for _ in frames]
    assert found == [{**frames[0], "large": large}, frames[1],
                     {**frames[2], "large": values[0]}, frames[3]]  # fmt: skip
    ends.connection.send({"op": "shutdown"})
    assert await asyncio.wait_for(reader.read(), 60) == {"op": "shutdown"}
    writer.close()
    assert await ends.lost is None


async def test_a_small_frame_goes_before_large_ones_of_others() -> None:
    ends = await Ends().open()
    for number in range(8):
        frame = {"op": "generate", "id": f"{number}", "text": Large("\n" * (1 << 20))}
        ends.connection.send(frame)
    small = {"op": "generate", "id": "small"}
    ends.connection.send(small)
    stream, writer = await asyncio.open_connection(sock=ends.theirs, limit=1 << 16)
    reader = FrameReader(stream)
    assert await asyncio.wait_for(reader.read(), 60) == small
    writer.close()
    await ends.lost


async def test_of_a_cancelled_request_no_more_is_sent() -> None:
    ends = await Ends().open()
    ends.connection.send({"op": "generate", "id": "a", "text": Large("a" * (32 << 20))})
    ends.connection.send({"op": "pause", "id": "a"})
    ends.connection.send({"op": "cancel", "id": "a"})
    await asyncio.wait_for(ends.connection.drained(), 60)
    ends.connection.close()
    ends.theirs.setblocking(False)
    sent = ends.theirs.recv(1 << 20)
    assert sent.endswith(encode_frame({"op": "cancel", "id": "a"}))
    assert b"pause" not in sent
    await ends.finish()


async def test_large_bytes_to_a_lost_connection_are_dropped() -> None:
    ends = await Ends().open()
    ends.connection.send({"op": "generate", "image": Large(bytes(8 << 20))})
    await asyncio.sleep(0)
    await ends.finish()
    ends.connection.send({"op": "generate", "image": Large(bytes(1 << 20))})
    await asyncio.wait_for(ends.connection.drained(), 60)


def test_a_frame_too_long_with_its_large_bytes_is_refused() -> None:
    connection = FrameConnection(lambda _: None, lambda _: None)
    with pytest.raises(ProtocolError, match="at most"):
        connection.send({"op": "generate", "image": Large(bytes(MAX_FRAME_BYTES))})
    with pytest.raises(ProtocolError, match="cannot be JSON"):
        connection.send({"op": "generate", "image": object()})
