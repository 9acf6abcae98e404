from __future__ import annotations

import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from registry.digest import Digest
from registry.names import Name
from registry.records import (
    MIN_BLOB_BYTES,
    BlobOrigin,
    BlobRecord,
    ManifestRecord,
    Records,
)

DIGEST = Digest.of(b"blob")
RECORD = BlobRecord(
    MIN_BLOB_BYTES, MIN_BLOB_BYTES // 2, (1, 2**32 - 1), BlobOrigin("hf.co/a/b", True)
)


def test_a_record_of_a_blob_is_read_back(tmp_path: Path) -> None:
    records = Records(tmp_path)
    assert records.blob(DIGEST) is None
    records.keep_blob(DIGEST, RECORD)
    assert records.blob(DIGEST) == RECORD
    assert list(records.blobs()) == [DIGEST]
    records.drop_blob(DIGEST)
    assert (records.blob(DIGEST), list(records.blobs())) == (None, [])


def test_an_origin_outlives_new_checksums(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.keep_origin(DIGEST, MIN_BLOB_BYTES, BlobOrigin("gemma3"))
    found = records.blob(DIGEST)
    assert found is not None
    assert (found.origin, found.is_complete) == (BlobOrigin("gemma3"), False)
    records.keep_blob(DIGEST, BlobRecord(MIN_BLOB_BYTES, MIN_BLOB_BYTES, (7,)))
    assert records.blob(DIGEST) == BlobRecord(
        MIN_BLOB_BYTES, MIN_BLOB_BYTES, (7,), BlobOrigin("gemma3")
    )


def test_small_blobs_have_no_record(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.keep_blob(DIGEST, BlobRecord(MIN_BLOB_BYTES - 1, MIN_BLOB_BYTES, (7,)))
    records.keep_origin(DIGEST, 1, BlobOrigin("gemma3"))
    assert records.blob(DIGEST) is None


def test_a_copy_of_a_manifest_is_kept_whatever_the_case_of_its_name(tmp_path: Path) -> None:
    records = Records(tmp_path)
    record = ManifestRecord(b'{\n"schemaVersion":2}', 12345)
    records.keep_manifest(Name.parse("User/M:Q4"), record)
    assert records.manifest(Name.parse("user/m:q4")) == record
    records.drop_manifest(Name.parse("user/m:q4"))
    assert records.manifest(Name.parse("user/m:q4")) is None
    assert list((tmp_path / ".hearth" / "manifests").iterdir()) == []


def test_every_flipped_bit_of_a_record_makes_it_say_nothing_or_the_same(tmp_path: Path) -> None:
    records, name = Records(tmp_path), Name.parse("m")
    records.keep_blob(DIGEST, RECORD)
    records.keep_manifest(name, ManifestRecord(b"{}", 5))
    path = tmp_path / ".hearth" / "blobs" / DIGEST.hex
    whole = path.read_bytes()
    for bit in range(len(whole) * 8):
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        path.write_bytes(broken)
        assert records.blob(DIGEST) is None, bit
    copy = tmp_path / ".hearth/manifests/registry.ollama.ai/library/m/latest"
    copy.write_bytes(copy.read_bytes()[:-1] + b"|")
    assert records.manifest(name) is None


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_content_of_a_record_is_passed_over(tmp_path_factory: object, content: bytes) -> None:
    root = tmp_path_factory.mktemp("store")  # type: ignore[attr-defined]
    records = Records(root)
    path = root / ".hearth" / "blobs" / DIGEST.hex
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert records.blob(DIGEST) is None


def test_a_disk_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".hearth").write_bytes(b"")
    records = Records(tmp_path)
    records.keep_blob(DIGEST, RECORD)
    records.keep_manifest(Name.parse("m"), ManifestRecord(b"{}", 5))
    assert (records.blob(DIGEST), records.manifest(Name.parse("m"))) == (None, None)


def test_what_a_killed_process_left_is_swept_when_it_is_old(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.keep_blob(DIGEST, RECORD)
    records.keep_manifest(Name.parse("m"), ManifestRecord(b"{}", 5))
    for folder in ("blobs", "manifests/registry.ollama.ai/library/m"):
        (tmp_path / ".hearth" / folder / ".half").write_bytes(b"")
    records.sweep(0.0)
    assert len(list(tmp_path.rglob(".half"))) == 2
    records.sweep(time.time() + 1)
    assert list(tmp_path.rglob(".half")) == []
    assert records.blob(DIGEST) == RECORD
    assert records.manifest(Name.parse("m")) is not None
