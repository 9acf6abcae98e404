from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from runner.worker.frame_reader import FrameReader
from runner.worker.frame_writer import PAUSE_BYTES, FrameWriter
from runner.worker.protocol import ProtocolError, encode_frame

TIMEOUT_S = 60


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


async def test_frames_arrive_in_order_from_many_threads_through_a_full_socket(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    outbox = FrameWriter(pair[0], asyncio.get_running_loop())

    def send(sender: int) -> None:
        for number in range(200):
            outbox.send({"op": "x", "sender": sender, "number": number, "fill": "y" * 3000})

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()
    stream, writer = await asyncio.open_connection(sock=pair[1])
    reader = FrameReader(stream)
    seen: dict[int, list[int]] = {}
    for _ in range(800):
        frame = await asyncio.wait_for(reader.read(), TIMEOUT_S)
        assert frame is not None
        seen.setdefault(frame["sender"], []).append(frame["number"])
    assert seen == {sender: list(range(200)) for sender in range(4)}
    assert outbox.queued_bytes == 0
    for thread in threads:
        thread.join(TIMEOUT_S)
    writer.close()
    outbox.close()


async def test_a_sender_far_ahead_waits_until_the_reader_has_caught_up(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    outbox = FrameWriter(pair[0], asyncio.get_running_loop())
    frame = {"op": "x", "fill": "y" * (PAUSE_BYTES // 2)}
    count = 0
    while outbox.queued_bytes <= PAUSE_BYTES:
        outbox.send(frame)
        count += 1
    waiting = threading.Thread(target=outbox.wait_for_room)
    waiting.start()
    assert waiting.is_alive()
    stream, writer = await asyncio.open_connection(sock=pair[1])
    reader = FrameReader(stream)
    for _ in range(count):
        assert await asyncio.wait_for(reader.read(), TIMEOUT_S) == frame
    await asyncio.to_thread(waiting.join, TIMEOUT_S)
    assert not waiting.is_alive()
    outbox.wait_for_room()
    writer.close()
    outbox.close()


async def test_a_lost_reader_neither_fails_nor_blocks_the_sender(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    outbox = FrameWriter(pair[0], asyncio.get_running_loop())
    pair[1].close()
    for _ in range(3):
        outbox.send({"op": "x", "fill": "y" * PAUSE_BYTES})
    outbox.wait_for_room()
    outbox.close()


async def test_a_frame_that_is_too_long_is_refused_and_the_next_one_goes(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    outbox = FrameWriter(pair[0], asyncio.get_running_loop())
    with pytest.raises(ProtocolError, match="at most"):
        outbox.send({"op": "x", "fill": "y" * (17 * 1024 * 1024)})
    outbox.send({"op": "y"})
    assert pair[1].recv(100) == encode_frame({"op": "y"})
    outbox.close()
