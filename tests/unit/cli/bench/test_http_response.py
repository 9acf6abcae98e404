"""Reading recorded answers."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.bench.http_request import TimedResponse
from cli.bench.http_response import InvalidResponse, error_text, parse_response, sse_events

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def recorded(*arrivals: bytes, fault: str | None = None) -> TimedResponse:
    """An exchange whose pieces arrived at 1, 2, 3 ... seconds."""
    timed = [(float(second), data) for second, data in enumerate(arrivals, 1)]
    return TimedResponse(0.0, timed, float(len(arrivals)), fault)


def chunk(data: bytes) -> bytes:
    """A chunk of the chunked transfer encoding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_each_event_has_the_time_its_last_byte_arrived() -> None:
    first, second = b'data: {"n": 1}\n\n', b'data: {"n": 2}\n\n'
    exchange = recorded(HEAD, chunk(first), chunk(second)[:9], chunk(second)[9:] + b"0\r\n\r\n")
    assert list(sse_events(parse_response(exchange))) == [(2.0, {"n": 1}), (4.0, {"n": 2})]


def test_events_end_at_done_and_comments_are_skipped() -> None:
    stream = b': ping\r\n\r\ndata: {"n": 1}\r\n\r\ndata: [DONE]\r\n\r\ndata: {"n": 2}\r\n\r\n'
    exchange = recorded(HEAD + chunk(stream) + b"0\r\n\r\n")
    assert [event for _, event in sse_events(parse_response(exchange))] == [{"n": 1}]


def test_an_answer_without_chunks_is_read_to_the_end_of_the_connection() -> None:
    answer = parse_response(recorded(b"HTTP/1.1 404 Not Found\r\n\r\n", b"gone ", b"away"))
    assert (answer.status, answer.body) == (404, b"gone away")


@pytest.mark.parametrize(
    ("exchange", "reason"),
    [
        (recorded(fault="127.0.0.1:1: Connection refused"), "Connection refused"),
        (recorded(), "without a response"),
        (recorded(b"SSH-2.0-x\r\n\r\n"), "not HTTP"),
        (recorded(HEAD, chunk(b"data: {}\n\n")), "before the response was complete"),
        (recorded(HEAD + b"zz\r\n"), "invalid chunk length"),
    ],
)
def test_broken_answers_name_what_broke(exchange: TimedResponse, reason: str) -> None:
    with pytest.raises(InvalidResponse, match=reason):
        parse_response(exchange)


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff"])
def test_an_event_that_is_no_object_is_refused(data: bytes) -> None:
    answer = parse_response(recorded(HEAD + chunk(b"data: " + data + b"\n\n") + b"0\r\n\r\n"))
    with pytest.raises(InvalidResponse, match="an event that is not"):
        list(sse_events(answer))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "no such model", "code": 404}}', "no such model"),
        (b'{"error": "no such model"}', "no such model"),
        (b'{"message": "bad"}', "bad"),
        (b"<html>\n  oops", "<html> oops"),
    ],
)
def test_error_text_reads_every_usual_shape(body: bytes, message: str) -> None:
    assert error_text(body) == message


@settings(max_examples=60, derandomize=True)
@given(
    numbers=st.lists(st.integers(), max_size=12),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_events_do_not_depend_on_how_the_bytes_were_cut(
    numbers: list[int], cuts: list[int]
) -> None:
    stream = b"".join(b"data: " + json.dumps({"n": n}).encode() + b"\n\n" for n in numbers)
    wire = HEAD + b"".join(chunk(stream[i : i + 7]) for i in range(0, len(stream), 7))
    wire += b"0\r\n\r\n"
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    pieces = [wire[start:end] for start, end in itertools.pairwise(edges)]
    got = [event["n"] for _, event in sse_events(parse_response(recorded(*pieces)))]
    assert got == numbers
