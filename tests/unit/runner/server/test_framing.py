"""Requests in pieces of any size."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.server.framing import FramingError, RequestFraming
from tests.framing_cases import ACCEPTED, CHUNKED, REFUSED_CHUNKS, REFUSED_HEADS

REFUSED = {**REFUSED_HEADS, **{name: CHUNKED + case for name, case in REFUSED_CHUNKS.items()}}


def read(pieces: list[bytes]) -> tuple[bytes, bytes, RequestFraming]:
    """What the parser gets, and what is left over."""
    framing, buffer, passed = RequestFraming(), bytearray(), b""
    for piece in pieces:
        buffer += piece
        if not framing.done:
            passed += framing.take(buffer)
    return passed, bytes(buffer), framing


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_request_is_refused_byte_by_byte_too(name: str) -> None:
    with pytest.raises(FramingError):
        read([bytes([byte]) for byte in REFUSED[name]])


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_request_ends_in_the_same_place_byte_by_byte(name: str) -> None:
    case = ACCEPTED[name][0]
    whole, rest, framing = read([case + b"GET"])
    assert rest == b"GET"
    assert framing.done
    _, rest, framing = read([bytes([byte]) for byte in case + b"GET"])
    assert rest == b"GET"
    assert framing.done
    assert whole


def test_chunks_that_come_together_are_one_for_the_parser() -> None:
    passed, _, _ = read([CHUNKED, b"1\r\na\r\n" * 500 + b"0\r\n\r\n"])
    assert passed == CHUNKED + b"1f4\r\n" + b"a" * 500 + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 100])
def test_a_body_in_small_chunks_is_refused_soon(size: int) -> None:
    framing, buffer = RequestFraming(), bytearray(CHUNKED)
    buffer += (b"%x\r\n%s\r\n" % (size, b"a" * size)) * 10_000
    with pytest.raises(FramingError, match="chunks of less than 128 bytes on average"):
        framing.take(buffer)


def test_a_body_in_many_chunks_of_usual_size_is_read() -> None:
    chunk = b"80\r\n" + b"a" * 128 + b"\r\n"
    assert read([CHUNKED, chunk * 10_000 + b"0\r\n\r\n"])[2].done


def test_a_head_is_passed_on_as_it_came() -> None:
    head = b"GET /a?b HTTP/1.1\r\nHost: x\r\nX-Some: Thing\r\n\r\n"
    passed, _, framing = read([head])
    assert passed == head
    assert framing.path == b"/a?b"
    assert framing.fields == [(b"host", b"x"), (b"x-some", b"Thing")]


def test_an_offer_of_another_protocol_is_left_out() -> None:
    sent = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close, Upgrade\r\nUpgrade: h2c\r\n\r\n"
    passed, _, _ = read([sent])
    assert passed == b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=10),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
def test_a_body_in_chunks_is_the_same_however_it_is_cut(
    chunks: list[bytes], cuts: list[int]
) -> None:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    places = [0, *sorted(cut for cut in cuts if cut <= len(body)), len(body)]
    pieces = [body[start:end] for start, end in itertools.pairwise(places)]
    passed, rest, framing = read([CHUNKED, *pieces])
    assert framing.done
    assert rest == b""
    assert unchunked(passed.removeprefix(CHUNKED)) == b"".join(chunks)


def unchunked(body: bytes) -> bytes:
    found = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        found, body = found + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return found
