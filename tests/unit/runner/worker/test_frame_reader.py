from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from runner.worker.frame_reader import FrameReader
from runner.worker.protocol import (
    BYTES,
    JSON,
    LENGTH,
    MAX_FRAME_BYTES,
    PIECE,
    PIECE_HEAD,
    TEXT,
    ProtocolError,
    encode_frame,
)


def piece(id: str, kind: int, ends: bool, data: bytes) -> bytes:
    body = PIECE_HEAD.pack(len(id.encode()), kind, ends) + id.encode() + data
    return LENGTH.pack(PIECE | len(body)) + body


def json_piece(id: str, frame: dict[str, Any]) -> bytes:
    return piece(id, JSON, True, json.dumps(frame).encode())


async def read_all(data: bytes) -> list[dict[str, Any]]:
    stream = asyncio.StreamReader()
    stream.feed_data(data)
    stream.feed_eof()
    reader, frames = FrameReader(stream), []
    while (frame := await reader.read()) is not None:
        frames.append(frame)
    return frames


async def test_frames_are_read_one_after_the_other_until_the_end() -> None:
    data = encode_frame({"op": "a"}) + encode_frame({"op": "b", "x": 1})
    assert await read_all(data) == [{"op": "a"}, {"op": "b", "x": 1}]
    assert await read_all(data[:-1]) == [{"op": "a"}]
    assert await read_all(b"") == []


async def test_a_length_that_is_too_great_is_refused_before_reading_on() -> None:
    with pytest.raises(ProtocolError, match="at most"):
        await read_all((MAX_FRAME_BYTES + 1).to_bytes(4))


async def test_a_frame_in_pieces_is_whole_again_and_small_ones_go_between() -> None:
    small = {"op": "stats", "id": "b"}
    frame = {"op": "x", "id": "a", "list": ["M1", {"text": "M0"}], "M0": "as it is"}
    data = [
        piece("a", TEXT, True, b"M"),
        encode_frame(small),
        piece("a", TEXT, False, b"one "),
        piece("a", TEXT, True, "\ud800".encode("utf-8", "surrogatepass")),
        encode_frame(small),
        piece("a", BYTES, True, b"\xff"),
        json_piece("a", frame),
    ]
    whole = {"op": "x", "id": "a", "list": [b"\xff", {"text": "one \ud800"}], "M0": "as it is"}
    assert await read_all(b"".join(data)) == [small, small, whole]


async def test_a_small_frame_takes_the_place_of_what_is_not_complete() -> None:
    cancel = {"op": "cancel", "id": "a"}
    data = [
        piece("a", TEXT, True, b"M"),
        piece("a", TEXT, False, b"never ends"),
        encode_frame(cancel),
        piece("a", TEXT, True, b"N"),
        piece("a", TEXT, True, b"again"),
        json_piece("a", {"op": "x", "id": "a", "text": "N0"}),
    ]
    assert await read_all(b"".join(data)) == [cancel, {"op": "x", "id": "a", "text": "again"}]


@pytest.mark.parametrize("data", [b"", b"\x01", PIECE_HEAD.pack(9, TEXT, True) + b"a",
                                  PIECE_HEAD.pack(1, TEXT, True) + b"a\xff"])  # fmt: skip
async def test_what_is_no_piece_is_refused(data: bytes) -> None:
    whole = LENGTH.pack(PIECE | len(data)) + data + json_piece("a", {"op": "x"})
    with pytest.raises(ProtocolError):
        await read_all(whole + json_piece("", {"op": "x"}) + b"\0\0\0\x01{")
