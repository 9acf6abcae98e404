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


def inflated(size_mib: int, *, gzip: bool = False) -> bytes:
    """So many MiB of zero bytes, compressed to a thousandth: after a full flush each MiB is the
    same bytes, so that only two of them are compressed."""
    packer, zeros, crc = zlib.compressobj(9, wbits=31 if gzip else 15), bytes(1 << 20), 0
    first, again = (packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    size, end = size_mib << 20, b"\x03\0"  # a last block without anything
    if gzip:
        for _ in range(size_mib):
            crc = zlib.crc32(zeros, crc)
        end += struct.pack("<II", crc, size)
    else:
        end += struct.pack(">I", size % 65521 << 16 | 1)  # Adler-32
    return first + again * (size_mib - 1) + end


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
