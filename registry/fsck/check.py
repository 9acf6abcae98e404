"""The check of a whole store.

Owns the order, and what is checked again at the end because models come and go meanwhile. Changes
nothing but hearth's own copies of manifests.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Generator, Iterator
from pathlib import Path

from registry.atomic import open_regular
from registry.digest import Digest
from registry.errors import BlobDamaged
from registry.fsck.findings import CheckTotals, Finding, FindingKind
from registry.fsck.manifest_files import Survey, check_manifests
from registry.fsck.other_files import check_modes, check_temporary
from registry.progress import Progress
from registry.store import Store

_NAME = re.compile(r"sha256-([0-9a-f]{64})", re.ASCII)
_OTHERS_PARTIAL = re.compile(r"sha256-[0-9a-f]{64}-partial(-\d+)?", re.ASCII)
_READ_BYTES = 1024 * 1024
_NO_FILE = "it is not a regular file"

Event = Finding | Progress | CheckTotals


def check(store: Store, quick: bool = False) -> Iterator[Event]:
    """Look at everything in a store, giving findings as they are made, how far the reading is,
    and last what was seen. quick: sizes only, no blob is read. Blocks on the disk."""
    survey = Survey()
    yield from check_manifests(store, survey)
    sizes: dict[Digest, int] = {}
    yield from _listed(store, survey, sizes)
    if not quick:
        yield from _read_all(store, survey, sizes)
    yield from _missing(store)
    yield from check_modes(store)
    yield from check_temporary(store)
    yield CheckTotals(survey.models, len(sizes), sum(sizes.values()))


def _listed(store: Store, survey: Survey, sizes: dict[Digest, int]) -> Iterator[Finding]:
    """Judge the names and sizes in blobs/; sizes gets what is to be read."""
    for entry in _entries(store.root / "blobs"):
        found = _NAME.fullmatch(entry.name)
        if found is None:
            if not entry.name.startswith(".") and not _OTHERS_PARTIAL.fullmatch(entry.name):
                path = f"blobs/{entry.name}"
                yield Finding("stray", path, f"{path} is not a blob and was left unchanged")
            continue
        digest = Digest(found[1])
        with contextlib.suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            size, wanted = status.st_size, survey.sizes.get(digest, status.st_size)
            if not stat.S_ISREG(status.st_mode):
                yield _finding(survey, digest, "link", f"is damaged: {_NO_FILE}")
            elif wanted != size:
                yield _finding(survey, digest, "size", f"has {size} bytes instead of {wanted}")
            else:
                sizes[digest] = size


def _read_all(store: Store, survey: Survey, sizes: dict[Digest, int]) -> Iterator[Event]:
    done, total = 0, sum(sizes.values())
    for digest, size in sizes.items():
        path = store.root / "blobs" / digest.file_name
        fault = yield from _read(path, digest, done, total)
        done += size
        if fault is not None:
            kind, reason = fault
            yield _finding(survey, digest, kind, f"is damaged: {reason}")


def _read(
    path: Path, digest: Digest, done: int, total: int
) -> Generator[Progress, None, tuple[FindingKind, str] | None]:
    """Hash a blob; returns what is wrong with it, None for one that is whole, or gone."""
    content = hashlib.sha256()
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            view = memoryview(bytearray(_READ_BYTES))
            while count := file.readinto(view):
                content.update(view[:count])
                done += count
                yield Progress("checking", done, total)
    except FileNotFoundError:
        return None
    except BlobDamaged:
        return "link", _NO_FILE
    except OSError as error:
        return "unreadable", f"it cannot be read: {os.strerror(error.errno or errno.EIO)}"
    if content.hexdigest() != digest.hex:
        return "content", f"its content is sha256:{content.hexdigest()}"
    return None


def _missing(store: Store) -> Iterator[Finding]:
    """The blobs that models want now and that are not there; links count as found already."""
    now = Survey()
    for model in store.models():
        if model.parsed is not None:
            now.add(model.name, model.parsed)
    for digest in sorted(now.users):
        if not os.path.lexists(store.root / "blobs" / digest.file_name):
            yield _finding(now, digest, "missing", "is missing")


def _finding(survey: Survey, digest: Digest, kind: FindingKind, fault: str) -> Finding:
    path, message = f"blobs/{digest.file_name}", f"blob {digest} {fault}"
    return Finding(kind, path, message, digest, models=survey.of(digest))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []
