"""Finds the one flipped bit of a chunk by its CRC-32, so that no copy is needed to mend it.

CRC-32 is linear: the checksums before and after differ by that of the flipped bit alone, which
depends on its distance to the end only, and no two bits of a chunk below 512 MiB share it. Source:
Ross Williams, "A Painless Guide to CRC Error Detection Algorithms" (1993).
"""

from __future__ import annotations

import zlib

_POLYNOMIAL = 0xEDB88320


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_FORWARD = _table()
_BACK = {entry >> 24: index for index, entry in enumerate(_FORWARD)}
_UNDO = [(_FORWARD[_BACK[top]] << 8 & 0xFFFFFFFF) ^ _BACK[top] for top in range(256)]
_FLIPS = {_FORWARD[1 << bit]: 1 << bit for bit in range(8)}


def flipped_bit(content: bytes | bytearray, crc: int) -> tuple[int, int] | None:
    """Where the one bit is whose flip gives content this CRC-32: (byte, mask). None when the
    damage is more than that. Takes a second for 8 MiB."""
    register = zlib.crc32(content) ^ crc
    for at in range(len(content) - 1, -1, -1):
        mask = _FLIPS.get(register)
        if mask is not None:
            return at, mask
        register = (register << 8 & 0xFFFFFFFF) ^ _UNDO[register >> 24]
    return None
