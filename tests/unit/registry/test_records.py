from __future__ import annotations

import json
import struct
import time
import zlib
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from registry.digest import Digest
from registry.manifests import ManifestFile
from registry.names import Name
from registry.records import (
    MIN_BLOB_BYTES,
    BlobOrigin,
    Records,
)
from tests.properties import examples

DIGEST = Digest.of(b"blob")
ORIGIN = BlobOrigin("hf.co/a/b", True, "recipe")


def test_a_record_of_a_blob_is_read_back(tmp_path: Path) -> None:
    records = Records(tmp_path)
    assert records.origin(DIGEST) is None
    records.keep_origin(DIGEST, MIN_BLOB_BYTES, ORIGIN)
    assert records.origin(DIGEST) == ORIGIN
    assert list(records.blobs()) == [DIGEST]
    records.drop_blob(DIGEST)
    assert (records.origin(DIGEST), list(records.blobs())) == (None, [])


def test_a_record_with_checksums_of_chunks_still_gives_the_origin(tmp_path: Path) -> None:
    facts = {"version": 1, "size": 8, "chunk": 4, "count": 2, "origin": "gemma3", "recipe": None}
    body = json.dumps(facts).encode() + b"\n" + struct.pack("<2I", 1, 10)
    path = tmp_path / ".hearth" / "blobs" / DIGEST.hex
    path.parent.mkdir(parents=True)
    path.write_bytes(body + struct.pack("<I", zlib.crc32(body)))
    records = Records(tmp_path)
    assert records.origin(DIGEST) == BlobOrigin("gemma3")
    records.keep_origin(DIGEST, MIN_BLOB_BYTES, ORIGIN)
    assert records.origin(DIGEST) == ORIGIN


def test_small_blobs_have_no_record_unless_they_were_made_here(tmp_path: Path) -> None:
    records, fetched = Records(tmp_path), replace(ORIGIN, recipe=None)
    records.keep_origin(DIGEST, MIN_BLOB_BYTES - 1, fetched)
    assert records.origin(DIGEST) is None
    made = replace(fetched, recipe="x")
    records.keep_origin(DIGEST, MIN_BLOB_BYTES - 1, made)
    assert records.origin(DIGEST) == made


def test_a_copy_of_a_manifest_is_kept_whatever_the_case_of_its_name(tmp_path: Path) -> None:
    records = Records(tmp_path)
    record = ManifestFile(b'{\n"schemaVersion":2}', 12345)
    records.keep_manifest(Name.parse("User/M:Q4"), record)
    assert records.manifest(Name.parse("user/m:q4")) == record
    records.drop_manifest(Name.parse("user/m:q4"))
    assert records.manifest(Name.parse("user/m:q4")) is None
    assert list((tmp_path / ".hearth" / "manifests").iterdir()) == []


def test_every_flipped_bit_of_a_record_makes_it_say_nothing_or_the_same(tmp_path: Path) -> None:
    records, name = Records(tmp_path), Name.parse("m")
    records.keep_origin(DIGEST, MIN_BLOB_BYTES, ORIGIN)
    records.keep_manifest(name, ManifestFile(b"{}", 5))
    path = tmp_path / ".hearth" / "blobs" / DIGEST.hex
    whole = path.read_bytes()
    for bit in range(len(whole) * 8):
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        path.write_bytes(broken)
        assert records.origin(DIGEST) is None, bit
    copy = tmp_path / ".hearth/manifests/registry.ollama.ai/library/m/latest"
    copy.write_bytes(copy.read_bytes()[:-1] + b"|")
    assert records.manifest(name) is None


@examples(40)
@given(st.binary(max_size=200))
def test_any_content_of_a_record_is_passed_over(tmp_path_factory: object, content: bytes) -> None:
    root = tmp_path_factory.mktemp("store")  # type: ignore[attr-defined]
    records = Records(root)
    path = root / ".hearth" / "blobs" / DIGEST.hex
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert records.origin(DIGEST) is None


def test_a_disk_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".hearth").write_bytes(b"")
    records = Records(tmp_path)
    records.keep_origin(DIGEST, MIN_BLOB_BYTES, ORIGIN)
    records.keep_manifest(Name.parse("m"), ManifestFile(b"{}", 5))
    assert (records.origin(DIGEST), records.manifest(Name.parse("m"))) == (None, None)


def test_what_a_killed_process_left_is_swept_when_it_is_old(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.keep_origin(DIGEST, MIN_BLOB_BYTES, ORIGIN)
    records.keep_manifest(Name.parse("m"), ManifestFile(b"{}", 5))
    for folder in ("blobs", "manifests/registry.ollama.ai/library/m"):
        (tmp_path / ".hearth" / folder / ".half").write_bytes(b"")
    records.sweep(lambda at_s: time.time() - at_s, 60.0)
    assert len(list(tmp_path.rglob(".half"))) == 2
    records.sweep(lambda at_s: time.time() - at_s, -1.0)
    assert list(tmp_path.rglob(".half")) == []
    assert records.origin(DIGEST) == ORIGIN
    assert records.manifest(Name.parse("m")) is not None
