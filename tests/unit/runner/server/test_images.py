"""Images in requests: which bytes are taken, and where their marks stand."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import HearthError, InvalidRequest, Unsupported
from runner.server.images import (
    MAX_IMAGE_BYTES,
    MAX_IMAGES,
    check_images,
    image_of_base64,
    image_of_bytes,
    image_of_url,
    join_parts,
    without_placeholders,
)
from runner.types import IMAGE_PLACEHOLDER, Image, Message

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
STARTS = {
    "png": PNG,
    "jpeg": b"\xff\xd8\xff\xe0" + bytes(20),
    "gif": b"GIF89a" + bytes(20),
    "webp": b"RIFF\0\0\0\0WEBP" + bytes(20),
    "bmp": b"BM" + bytes(20),
}


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("kind", STARTS)
def test_each_kind_is_taken_under_its_media_type(kind: str) -> None:
    url = f"data:image/{kind};base64,{coded(STARTS[kind])}"
    assert image_of_url(url, "here") == Image(STARTS[kind])


@pytest.mark.parametrize(
    "url",
    [
        f"data:;base64,{coded(PNG)}",
        f"DATA:image/PNG;charset=x;BASE64,{coded(PNG)}",
        f"data:image/png;base64,{coded(PNG)[:9]}\r\n {coded(PNG)[9:]}\n",
        f"data:application/octet-stream;base64,{coded(PNG)}",
    ],
)
def test_a_data_url_may_be_written_in_other_ways(url: str) -> None:
    assert image_of_url(url, "here") == Image(PNG)


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("https://example.com/a.png", Unsupported, "not fetched from the network"),
        ("http://localhost/a.png", Unsupported, "here: images are not fetched"),
        ("file:///etc/passwd", InvalidRequest, "not a data: URL"),
        ("a.png", InvalidRequest, "here is 'a.png', not a data: URL"),
        ("", InvalidRequest, "not a data: URL"),
        ("data:image/png,abc", InvalidRequest, "without base64"),
        ("data:image/png;base64", InvalidRequest, "without base64"),
        ("data:image/png;base64,", InvalidRequest, "the data is not PNG"),
        ("data:image/png;base64,%%%", InvalidRequest, "is not base64"),
        ("data:image/png;base64,aé", InvalidRequest, "is not base64"),
        (f"data:image/png;base64,{coded(PNG)[:-1]}", InvalidRequest, "is not base64"),
        (f"data:image/png;base64,{coded(b'hello')}", InvalidRequest, "begins with b'hello'"),
        (f"data:text/html;base64,{coded(PNG)}", InvalidRequest, "a PNG, but its media type is"),
        (
            f"data:image/jpeg;base64,{coded(PNG)}",
            InvalidRequest,
            "here: the data is a PNG, but its media type is 'image/jpeg'",
        ),
    ],
)
def test_what_is_no_image_is_refused_with_its_place(
    url: str, error: type[HearthError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        image_of_url(url, "here")
    assert caught.value.details["param"] == "here"


@pytest.mark.parametrize("size_bytes", [(1 << 19) - 1, 1 << 19, 1_000_003])
@pytest.mark.parametrize("line_chars", [76, 1 << 19, 4 << 20])
def test_a_long_image_is_decoded_in_steps_wherever_its_lines_end(
    size_bytes: int, line_chars: int
) -> None:
    data = PNG + bytes(range(251)) * (size_bytes // 251) + bytes(size_bytes % 251)
    text = coded(data)
    lines = [text[start : start + line_chars] for start in range(0, len(text), line_chars)]
    assert image_of_base64("\r\n".join(lines), "here") == Image(data)


def test_padding_at_the_end_of_a_step_ends_the_image() -> None:
    first = coded(PNG + bytes((3 << 17) - len(PNG) - 1))
    assert len(first) == 1 << 19
    assert first.endswith("=")
    with pytest.raises(InvalidRequest, match="not base64: excess data after padding"):
        image_of_base64(first + coded(PNG), "here")


def test_an_image_over_the_bound_is_refused_before_it_is_decoded() -> None:
    most = PNG + bytes(MAX_IMAGE_BYTES - len(PNG))
    assert image_of_bytes(most, "here") == Image(most)
    with pytest.raises(InvalidRequest, match="here: the image has 20971521 bytes, at most 20 MiB"):
        image_of_base64(coded(most + b"\0"), "here")
    with pytest.raises(InvalidRequest, match="at most 25 MiB"):
        image_of_base64("%" * (3 * MAX_IMAGE_BYTES), "here")


def test_marks_stand_where_the_images_are_and_texts_are_joined_by_lines() -> None:
    one, two = Image(PNG), Image(STARTS["gif"])
    content, images = join_parts(["a", "b", one, two, "c"])
    assert content == f"a\nb{IMAGE_PLACEHOLDER}{IMAGE_PLACEHOLDER}c"
    assert images == (one, two)
    assert join_parts([]) == ("", ())


@given(
    st.lists(
        st.one_of(st.just(None), st.sampled_from(["<|hearth_", "image|>", IMAGE_PLACEHOLDER, "x"]))
    )
)
def test_there_are_as_many_marks_as_images_whatever_the_texts_say(
    parts: list[str | None],
) -> None:
    content, images = join_parts([Image(PNG) if part is None else part for part in parts])
    assert content.count(IMAGE_PLACEHOLDER) == len(images) == parts.count(None)


@given(st.lists(st.sampled_from(["<|hearth_", "image|>", IMAGE_PLACEHOLDER, "<|", "_", " "])))
def test_no_text_brings_the_mark_in(parts: list[str]) -> None:
    assert IMAGE_PLACEHOLDER not in without_placeholders("".join(parts))


def test_requests_are_bounded_in_number_and_size_of_images() -> None:
    message = Message("user", "", images=(Image(PNG),))
    assert check_images([Message("user", "x")]) is False
    assert check_images([message] * MAX_IMAGES) is True
    with pytest.raises(InvalidRequest, match="65 images; the maximum per request is 64"):
        check_images([message] * (MAX_IMAGES + 1))
    large = replace(message, images=(Image(PNG + bytes(15 << 20)),))
    with pytest.raises(
        InvalidRequest, match="the images have 45 MiB in total; the maximum is 40 MiB"
    ):
        check_images([large] * 3)
    assert check_images([large] * 2, answers=5)
    with pytest.raises(InvalidRequest, match="6 answers to 30 MiB of images"):
        check_images([large] * 2, answers=6)
