from __future__ import annotations

import random
import zlib

from hypothesis import given, settings
from hypothesis import strategies as st

from registry.fsck.bits import flipped_bit


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=300), st.data())
def test_the_flipped_bit_is_found(content: bytes, data: st.DataObject) -> None:
    at, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
    damaged = bytearray(content)
    damaged[at] ^= 1 << bit
    assert flipped_bit(damaged, zlib.crc32(content)) == (at, 1 << bit)


def test_more_than_one_flipped_bit_is_no_flipped_bit() -> None:
    content = random.Random(1).randbytes(10_000)
    for first, second in ((0, 1), (0, 9_999), (17, 4_000)):
        damaged = bytearray(content)
        damaged[first] ^= 1
        damaged[second] ^= 128
        assert flipped_bit(damaged, zlib.crc32(content)) is None


def test_whole_content_has_no_flipped_bit() -> None:
    assert flipped_bit(b"whole", zlib.crc32(b"whole")) is None
