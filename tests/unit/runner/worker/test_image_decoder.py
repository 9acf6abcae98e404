from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from runner.errors import InvalidRequest, Unsupported
from runner.worker import image_decoder
from runner.worker.image_decoder import decode
from tests.vision_files import png

pillow: Any = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def file(image: Any, format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_the_formats_that_clients_send_are_decoded(format: str) -> None:
    found = decode(file(pillow.new("RGB", (5, 3), (200, 40, 40)), format))
    assert (found.width, found.height, len(found.rgb)) == (5, 3, 45)
    assert all(abs(got - want) < 12 for got, want in zip(found.rgb[:3], (200, 40, 40), strict=True))


def test_a_png_that_no_library_made_is_decoded() -> None:
    found = decode(png(9, 4))
    assert (found.width, found.height) == (9, 4)


def test_a_picture_is_turned_as_its_camera_says() -> None:
    image = pillow.new("RGB", (4, 2), "white")
    exif = image.getexif()
    exif[0x0112] = 6
    found = decode(file(image, "JPEG", exif=exif))
    assert (found.width, found.height) == (2, 4)


@pytest.mark.parametrize(
    ("mode", "format"), [("RGBA", "PNG"), ("LA", "PNG"), ("RGBA", "GIF"), ("RGBA", "WEBP")]
)
def test_what_is_transparent_becomes_white(mode: str, format: str) -> None:
    image = pillow.new("RGBA", (2, 2), (0, 0, 0, 0)).convert(mode)
    assert decode(file(image, format)).rgb[:3] == b"\xff\xff\xff"


def test_sixteen_bits_of_grey_become_eight() -> None:
    found = decode(file(pillow.new("I;16", (2, 1), 0x8000), "PNG"))
    assert set(found.rgb) == {0x80}


def test_the_first_frame_of_a_moving_picture_counts() -> None:
    frames = [pillow.new("RGB", (2, 2), color) for color in ("red", "blue")]
    data = file(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode(data).rgb[:3] == b"\xff\x00\x00"


@pytest.mark.parametrize(
    "data", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n" + b"\0" * 40, png(40, 40)[:-60], b"II*\0" * 9]
)
def test_what_is_no_whole_picture_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="cannot be decoded") as raised:
        decode(data)
    assert "0x" not in raised.value.message
    assert raised.value.details["param"] == "messages"


def test_too_many_pixels_are_refused_before_they_are_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(image_decoder, "MAX_PIXELS", 2_000_000)
    data = file(pillow.new("1", (2000, 1001)), "PNG")
    with pytest.raises(InvalidRequest, match=r"2000 x 1001 pixels, at most 2 million"):
        decode(data)


def test_a_picture_of_one_thin_line_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="201 x 1"):
        decode(file(pillow.new("L", (201, 1)), "PNG"))


def test_without_pillow_the_way_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(Unsupported, match=r"\./install\.sh"):
        decode(png(2, 2))
