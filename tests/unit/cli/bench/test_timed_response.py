"""Recording one request, and reading its events."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import Generator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.bench.timed_response import InvalidResponse, TimedResponse, send_request, sse_events
from runner.client import Client
from tests.properties import examples
from tests.unit.cli.bench.conftest import FakeServer


def recorded(*pieces: bytes, fault: str | None = None) -> TimedResponse:
    """A record whose pieces arrived at 1, 2, 3 ... seconds."""
    timed = [(float(second), data) for second, data in enumerate(pieces, 1)]
    return TimedResponse(0.0, timed, float(len(pieces)), fault)


def test_pieces_are_recorded_with_their_times(fake: FakeServer) -> None:
    body = {"messages": [], "max_tokens": 3, "stream": True}
    record = send_request(fake.client, "/v1/chat/completions", body)
    assert record.fault is None
    assert b"".join(piece for _, piece in record.pieces).endswith(b"data: [DONE]\n\n")
    times = [record.started_s, *(moment for moment, _ in record.pieces), record.ended_s]
    assert times == sorted(times)


class Reader(Client):
    """Sets read when its user comes back for the next piece."""

    def __init__(self, port: int) -> None:
        super().__init__(f"http://127.0.0.1:{port}")
        self.read = threading.Event()

    def post(self, path: str, body: Mapping[str, Any]) -> Generator[bytes, None, None]:
        """See Client."""
        for piece in super().post(path, body):
            yield piece
            self.read.set()


def test_the_time_of_a_piece_is_that_of_its_arrival_and_an_early_end_is_a_fault() -> None:
    sent_s: list[float] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65_536)
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.sendall(head + b"1\r\na\r\n")
            assert client.read.wait(10)
            sent_s.append(time.perf_counter())
            connection.sendall(b"1\r\nb\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Reader(listener.getsockname()[1])
        thread = threading.Thread(target=serve)
        thread.start()
        record = send_request(client, "/", {})
        thread.join()
    (first_s, first), (second_s, second) = record.pieces
    assert (first, second) == (b"a", b"b")
    assert first_s <= sent_s[0] <= second_s
    assert record.fault is not None
    assert "was lost" in record.fault


def test_each_event_has_the_time_its_last_byte_arrived() -> None:
    record = recorded(b'data: {"n": 1}\n\n', b'data: {"n"', b": 2}\n\n")
    assert list(sse_events(record)) == [(1.0, {"n": 1}), (3.0, {"n": 2})]


def test_events_end_at_done_and_comments_are_skipped() -> None:
    stream = b': ping\r\n\r\ndata: {"n": 1}\r\n\r\ndata: [DONE]\r\n\r\ndata: {"n": 2}\r\n\r\n'
    assert [event for _, event in sse_events(recorded(stream))] == [{"n": 1}]


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff"])
def test_an_event_that_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidResponse, match="the response is not"):
        list(sse_events(recorded(b"data: " + data + b"\n\n")))


@examples(30)
@given(
    numbers=st.lists(st.integers(), max_size=12),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_events_do_not_depend_on_how_the_bytes_were_cut(
    numbers: list[int], cuts: list[int]
) -> None:
    wire = b"".join(b"data: " + json.dumps({"n": n}).encode() + b"\n\n" for n in numbers)
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    pieces = [wire[start:end] for start, end in itertools.pairwise(edges)]
    assert [event["n"] for _, event in sse_events(recorded(*pieces))] == numbers
