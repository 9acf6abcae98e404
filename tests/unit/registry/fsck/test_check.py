from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from registry.digest import Digest
from registry.fsck.check import check
from registry.fsck.findings import Finding
from registry.progress import Progress
from registry.store import Store
from tests.unit.registry.store_models import checked, findings, install, manifest_path, put_blob

WEIGHTS = random.Random(3).randbytes(600_000)
FLIPS = 60


def flip(path: Path, bit: int) -> None:
    """Flip one bit as a failing disk does: the times of the file stay."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def kinds(store: Store, quick: bool = False) -> list[str]:
    return [finding.kind for finding in findings(store, quick)]


def test_a_whole_store_has_no_findings(store: Store) -> None:
    install(store, "a", WEIGHTS)
    install(store, "user/b:q4", WEIGHTS, b"template")
    put_blob(store, b"unreferenced")
    assert findings(store) == []
    seen = checked(store)
    assert (seen.models, seen.blobs) == (2, 4)
    assert seen.size_bytes == len(WEIGHTS) + len(b"template{}unreferenced")


def test_every_flipped_bit_is_found(store: Store) -> None:
    install(store, "a", WEIGHTS[:3000])
    install(store, "b", WEIGHTS[3000:4000], b"template")
    files = [path for path in store.root.rglob("*") if path.is_file() and path.stat().st_size]
    files = [path for path in files if "blobs" in path.parts or "manifests" in path.parts]
    files = [path for path in files if ".hearth" not in path.parts]
    choice = random.Random(8)
    for _ in range(FLIPS):
        path = choice.choice(files)
        bit = choice.randrange(path.stat().st_size * 8)
        flip(path, bit)
        found = findings(store)
        assert str(path.relative_to(store.root)) in [finding.path for finding in found]
        flip(path, bit)
    assert findings(store) == []


def test_a_flipped_bit_names_the_models(store: Store) -> None:
    layer = install(store, "a", WEIGHTS).layers[0]
    install(store, "b", WEIGHTS, b"other")
    flip(store.blob_path(layer.digest), 4_000_000)
    (finding,) = findings(store)
    assert (finding.kind, finding.models, finding.digest) == ("content", ("a", "b"), layer.digest)
    assert finding.message.startswith(f"blob {layer.digest} is damaged: its content is sha256:")


def test_a_quick_check_reads_no_blob_and_finds_what_is_short_or_gone(store: Store) -> None:
    long, gone = install(store, "a", WEIGHTS, b"gone").layers
    flip(store.blob_path(long.digest), 5)
    assert kinds(store, quick=True) == []
    os.truncate(store.blob_path(long.digest), 1000)
    store.blob_path(gone.digest).unlink()
    short, missing = findings(store, quick=True)
    assert (short.kind, short.models) == ("size", ("a",))
    assert (missing.kind, missing.digest, missing.models) == ("missing", gone.digest, ("a",))
    assert missing.message == f"blob {gone.digest} is missing"


def test_a_link_and_a_pipe_in_place_of_a_blob_are_not_followed(
    store: Store, tmp_path: Path
) -> None:
    link, pipe = install(store, "a", b"text", b"pipe").layers
    (tmp_path / "text").write_bytes(b"text")
    for layer in (link, pipe):
        store.blob_path(layer.digest).unlink()
    (store.root / "blobs" / link.digest.file_name).symlink_to(tmp_path / "text")
    os.mkfifo(store.root / "blobs" / pipe.digest.file_name)
    assert sorted(kinds(store)) == ["link", "link"]


def test_a_torn_manifest_is_found_and_one_that_another_program_wrote_is_not(store: Store) -> None:
    install(store, "a", b"one")
    other = install(store, "b", b"two")
    manifest_path(store, "a").write_bytes(other.to_bytes())
    assert findings(store) == []
    manifest_path(store, "a").write_bytes(b"{")
    (finding,) = findings(store)
    assert (finding.kind, finding.models) == ("manifest", ("a",))
    assert "the manifest of a is damaged: not JSON" in finding.message


def test_a_changed_byte_of_a_manifest_is_found_although_its_time_is_new(store: Store) -> None:
    install(store, "a", b"one")
    path = manifest_path(store, "a")
    path.write_bytes(path.read_bytes().replace(b"image.model", b"image.modem"))
    os.utime(path, (5, 5))
    (finding,) = findings(store)
    assert finding.message == "the manifest of a is damaged: its content has been corrupted"


def test_what_is_no_part_of_a_store_is_told_and_left_alone(store: Store) -> None:
    install(store, "a", b"one")
    strays = ["blobs/notes.txt", "manifests/readme", "tmp/mine"]
    for name in strays:
        (store.root / name).write_bytes(b"")
        (store.root / name).chmod(0o600)
    (store.root / "blobs" / f"sha256-{'0' * 64}-partial-3").write_bytes(b"Ollama's")
    (store.root / "manifests" / ".DS_Store").write_bytes(b"")
    found = findings(store)
    assert sorted(finding.path for finding in found if finding.kind == "stray") == strays
    assert not any(finding.is_damage for finding in found)


@pytest.mark.parametrize(("mode", "ok"), [(0o644, True), (0o600, True), (0o666, False)])
def test_files_that_others_may_change_are_found(store: Store, mode: int, ok: bool) -> None:
    layer = install(store, "a", b"one").layers[0]
    store.blob_path(layer.digest).chmod(mode)
    assert kinds(store) == ([] if ok else ["mode"])


def test_dangling_parts_of_transfers_are_found(store: Store) -> None:
    for name in ("partial-a", "partial-b.journal", "partial-c", "partial-c.journal"):
        (store.root / "tmp" / name).write_bytes(b"")
        (store.root / "tmp" / name).chmod(0o600)
    assert findings(store) == []
    for name in ("partial-a", "partial-b.journal"):
        long_ago = time.time() - 7200
        os.utime(store.root / "tmp" / name, (long_ago, long_ago))
    found = {finding.path: finding.message for finding in findings(store)}
    assert found == {
        "tmp/partial-a": "tmp/partial-a is a partial transfer without its journal",
        "tmp/partial-b.journal": "tmp/partial-b.journal is a journal without its file",
    }
    for name in ("partial-c", "partial-c.journal"):
        os.utime(store.root / "tmp" / name, (5, 5))
    assert kinds(store).count("partial") == 4


def test_how_far_the_reading_is_can_be_followed(store: Store) -> None:
    install(store, "a", WEIGHTS, b"x")
    steps = [event for event in check(store) if isinstance(event, Progress)]
    done = [step.completed or 0 for step in steps]
    assert done == sorted(done)
    assert steps[-1].completed == steps[-1].total == len(WEIGHTS) + 3


def test_a_read_only_store_is_checked_and_not_written_to(store: Store) -> None:
    layer = install(store, "a", WEIGHTS).layers[0]
    before = sorted(store.root.rglob("*"))
    reader = Store.open(store.root, read_only=True)
    assert findings(reader) == []
    assert sorted(store.root.rglob("*")) == before
    flip(store.blob_path(layer.digest), 7)
    assert kinds(reader) == ["content"]


def test_a_model_that_is_deleted_while_it_is_read_is_no_finding(store: Store) -> None:
    install(store, "a", WEIGHTS, b"x")
    stored = store.models()[0]
    found: list[Finding] = []
    for event in check(store):
        if isinstance(event, Progress) and store.models():
            store.delete(stored.name)
        if isinstance(event, Finding):
            found.append(event)
    assert found == []
    assert not store.has_blob(Digest.of(b"x"))
