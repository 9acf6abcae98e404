"""Picture files that cost far more than their size says."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png_of(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG with that header, these chunks and one row of pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = (b"IDAT", zlib.compress(bytes(width * 3 + 1), 9))
    return _SIGNATURE + b"".join(map(_chunk, ((b"IHDR", head), *chunks, data, (b"IEND", b""))))


def _chunk(chunk: tuple[bytes, bytes]) -> bytes:
    name, data = chunk
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def inflated(size: int) -> bytes:
    """size zero bytes, compressed to a thousandth."""
    return zlib.compress(bytes(size), 9)


def moving_gif(frames: int) -> bytes:
    """A GIF of 2 x 2 pixels with so many frames."""
    frame = b"\x21\xf9\x04\x00\x01\x00\x00\x00" + b"\x2c" + struct.pack("<4HB", 0, 0, 2, 2, 0)
    frame += b"\x02\x03\x84\x8f\x05\x00"
    head = b"GIF89a" + struct.pack("<2HBBB", 2, 2, 0x80, 0, 0) + b"\xff\x00\x00\x00\x00\xff"
    return head + frame * frames + b"\x3b"


def scans_of_jpeg(pillow: Any, side: int, scans: int) -> bytes:
    """A progressive JPEG whose last scan comes so many times."""
    buffer = io.BytesIO()
    pillow.new("RGB", (side, side), "red").save(buffer, "JPEG", progressive=True)
    data = buffer.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + data[-2:]


def file_of(image: Any, format: str, **options: Any) -> bytes:
    """What Pillow writes."""
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()
