from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.server.ollama.image_places import placed
from runner.types import Image

A, B, C = Image(b"a"), Image(b"b"), Image(b"c")


@pytest.mark.parametrize(
    ("images", "text", "first", "expected"),
    [
        ([], "no [img] here", 0, ["no [img] here"]),
        ([A], "what is it?", 0, [A, "what is it?"]),
        ([A, B], "compare [img] and [img].", 0, ["compare ", A, " and ", B, "."]),
        ([A, B], "[img] only", 0, [B, "", A, " only"]),
        ([A, B], "[img-1] then [img-0]", 0, ["", B, " then ", A, ""]),
        ([A, B], "[img] then [img-0]", 0, ["", B, " then ", A, ""]),
        ([A], "[img-2] is third", 2, ["", A, " is third"]),
        ([A], "[img-0] is not mine", 2, [A, "[img-0] is not mine"]),
        ([A], "[img-0] twice [img-0] [img]", 0, ["", A, " twice [img-0] [img]"]),
        ([A], "[img-9999] [img-x] [IMG]", 0, [A, "[img-9999] [img-x] [IMG]"]),
    ],
)
def test_an_image_stands_where_the_text_says(
    images: list[Image], text: str, first: int, expected: list[str | Image]
) -> None:
    assert placed(images, text, first) == expected


WORDS = st.sampled_from(["[img]", "[img-0]", "[img-1]", "[img-7]", "x "])


@given(st.lists(WORDS), st.integers(0, 3))
def test_each_image_stands_once_and_what_is_no_place_stays(words: list[str], count: int) -> None:
    images = [A, B, C][:count]
    parts = placed(images, "".join(words))
    assert sorted(part.data for part in parts if isinstance(part, Image)) == [
        image.data for image in images
    ]
    assert sum(len(part) for part in parts if isinstance(part, str)) <= len("".join(words))
