"""Single flipped bits anywhere in a store: `make store-bitflips` for a thousand of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from registry.fsck.check import check
from registry.fsck.findings import Finding
from registry.names import Name
from registry.store import Store
from tests.store_operations import install

FLIPS = 1000


def flip(path: Path, bit: int) -> None:
    """Flip one bit as a failing disk does: the times of the file stay."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def found_of(flips: int, seed: int, root: Path) -> int:
    """Flip that many bits, one after the other, in blobs and manifests; gives how many were
    found where they are."""
    choice, found = random.Random(seed), 0
    store = Store.open(root)
    for number in range(4):
        content = choice.randbytes(choice.choice((10, 5_000, 400_000)))
        install(store, Name.parse(f"user/m{number}"), content, b'{"n":%d}' % number)
    files = [path for top in ("blobs", "manifests") for path in sorted((root / top).rglob("*"))]
    files = [path for path in files if path.is_file()]
    sizes = [path.stat().st_size for path in files]
    for number in range(flips):
        by_size = number % 2 == 0  # every second one falls on any file, however small
        (index,) = choice.choices(range(len(files)), sizes if by_size else None)
        bit = choice.randrange(sizes[index] * 8)
        flip(files[index], bit)
        told = [event for event in check(store) if isinstance(event, Finding)]
        path = str(files[index].relative_to(root))
        found += any(finding.is_damage and finding.path == path for finding in told)
        flip(files[index], bit)
    assert [event for event in check(store) if isinstance(event, Finding)] == []
    store.close()
    return found


def test_flipped_bits_are_found(tmp_path: Path) -> None:
    assert found_of(40, 3, tmp_path / "models") == 40


@pytest.mark.slow
def test_of_a_thousand_flipped_bits_all_are_found(tmp_path: Path) -> None:
    found = found_of(FLIPS, 4, tmp_path / "models")
    print(f"{FLIPS} bits flipped, {found} found")
    assert found == FLIPS
