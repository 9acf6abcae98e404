"""Forms read piece by piece, whatever the pieces."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import InvalidRequest
from runner.server.openai.files.form import MAX_FIELD_BYTES, MAX_PARTS, FormReader

BOUNDARY = "multipart/form-data; boundary=b"


def encoded(data: bytes, name: str = "a.jsonl", **fields: str) -> tuple[str, bytes]:
    request = httpx.Request("POST", "http://x/", files={"file": (name, data)}, data=fields)
    return request.headers["content-type"], request.read()


def read(content_type: str, body: bytes, size: int = 1 << 20) -> tuple[FormReader, bytes]:
    pieces: list[bytes] = []
    form = FormReader(content_type, pieces.append)
    for at in range(0, len(body), size):
        form.feed(body[at : at + size])
    form.finish()
    return form, b"".join(pieces)


@given(st.binary(max_size=300), st.integers(1, 40))
def test_the_file_comes_whole_however_the_body_is_cut(data: bytes, size: int) -> None:
    content_type, body = encoded(b"\r\n--" + data, purpose="batch")
    form, found = read(content_type, body, size)
    assert found == b"\r\n--" + data
    assert form.items == [("purpose", "batch")]


@pytest.mark.parametrize(
    ("given_name", "kept"),
    [
        ("été.jsonl", "été.jsonl"),
        ("../../etc/passwd", "passwd"),
        ("C:\\files\\a.txt", "a.txt"),
        ("a\tb", "ab"),
        ("x" * 400, "x" * 255),
        ("/", "file"),
    ],
)
def test_a_file_name_is_a_name_only(given_name: str, kept: str) -> None:
    head = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{given_name}"\r\n\r\n'
    form, _ = read(BOUNDARY, head.encode() + b"x\r\n--b--\r\n")
    assert form.filename == kept


def test_a_content_type_is_short() -> None:
    with pytest.raises(InvalidRequest, match="at most 1024"):
        FormReader("multipart/form-data; boundary=a" + ";" * 1024, lambda data: None)


@pytest.mark.parametrize("content_type", ["", "application/json", "multipart/form-data", "x;y=z"])
def test_what_is_no_form_is_refused(content_type: str) -> None:
    with pytest.raises(InvalidRequest, match="multipart/form-data"):
        FormReader(content_type, lambda data: None)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "ends before"),
        (b"nonsense", "form data is invalid"),
        (b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nx\r\n--b--\r\n', "no file"),
        (b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx', "ends before"),
    ],
)
def test_a_broken_form_is_refused(body: bytes, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        read(BOUNDARY, body)


def test_a_form_is_bounded() -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="n"\r\n\r\n'
    with pytest.raises(InvalidRequest, match=str(MAX_PARTS)):
        read(BOUNDARY, (part + b"x\r\n") * (MAX_PARTS + 1))
    with pytest.raises(InvalidRequest, match=str(MAX_FIELD_BYTES)):
        read(BOUNDARY, part + b"x" * (MAX_FIELD_BYTES + 1))
    file = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n'
    with pytest.raises(InvalidRequest, match="more than one"):
        read(BOUNDARY, file * 2)
    with pytest.raises(InvalidRequest, match="form data is invalid"):
        read(BOUNDARY, b"--b\r\n" + b"X-Long: " + b"y" * 100_000)


@given(st.binary(max_size=200))
def test_no_body_breaks_the_reader(body: bytes) -> None:
    try:
        read(BOUNDARY, b"--b\r\n" + body)
    except InvalidRequest:
        return
