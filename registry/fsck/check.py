"""The check of a whole store.

Owns the order and what is judged again at the end, for models come and go meanwhile. Changes
nothing but hearth's own copies of manifests.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from registry.digest import Digest
from registry.fsck.content import Verdict, read
from registry.fsck.findings import CheckProgress, CheckTotals, Finding, FindingKind
from registry.fsck.manifest_files import Survey, check_manifests
from registry.fsck.other_files import check_modes, check_temporary
from registry.store import Store

_NAME = re.compile(r"sha256-([0-9a-f]{64})", re.ASCII)
_OTHERS_PARTIAL = re.compile(r"sha256-[0-9a-f]{64}-partial(-\d+)?", re.ASCII)

Event = Finding | CheckProgress | CheckTotals


@dataclass(frozen=True, slots=True)
class _Blob:
    digest: Digest
    path: Path
    size_bytes: int


def check(store: Store, quick: bool = False) -> Iterator[Event]:
    """Look at everything in a store, giving findings as they are made, how far the reading is,
    and last what was seen. quick: sizes only, no blob is read. Blocks on the disk."""
    survey = Survey()
    yield from check_manifests(store, survey)
    blobs: list[_Blob] = []
    yield from _listed(store, survey, blobs)
    if not quick:
        yield from _read_all(store, survey, blobs)
    yield from _missing(store)
    yield from check_modes(store)
    yield from check_temporary(store)
    yield CheckTotals(survey.models, len(blobs), sum(blob.size_bytes for blob in blobs))


def blob_finding(survey: Survey, digest: Digest, verdict: Verdict) -> Finding | None:
    """What is to be said of a blob that was read; None when it is whole, or gone and not
    wanted."""
    kinds: dict[str, FindingKind] = {
        "content": "content",
        "unreadable": "unreadable",
        "link": "link",
    }
    kind = kinds.get(verdict.state)
    if kind is None:
        return None
    message = f"blob {digest} is damaged: {verdict.detail}"
    path = f"blobs/{digest.file_name}"
    return Finding(kind, path, message, digest, models=survey.of(digest))


def _listed(store: Store, survey: Survey, blobs: list[_Blob]) -> Iterator[Finding]:
    """Judge the names and sizes in blobs/; what is to be read goes into blobs."""
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
            wanted = survey.sizes.get(digest, status.st_size)
            if not stat.S_ISREG(status.st_mode):
                verdict = Verdict("link", "it is not a regular file")
                yield from _some(blob_finding(survey, digest, verdict))
            elif wanted != status.st_size:
                yield _wrong_size(survey, digest, status.st_size)
            else:
                blobs.append(_Blob(digest, Path(entry.path), status.st_size))


def _wrong_size(survey: Survey, digest: Digest, size_bytes: int) -> Finding:
    message = f"blob {digest} has {size_bytes} bytes instead of {survey.sizes[digest]}"
    return Finding(
        "size",
        f"blobs/{digest.file_name}",
        message,
        digest,
        models=survey.of(digest),
    )


def _read_all(_store: Store, survey: Survey, blobs: list[_Blob]) -> Iterator[Event]:
    total, done = sum(blob.size_bytes for blob in blobs), 0
    for blob in blobs:
        verdict, path = Verdict(), f"blobs/{blob.digest.file_name}"
        for count in read(blob.path, blob.digest, verdict):
            done += count
            yield CheckProgress(path, done, total)
        yield from _some(blob_finding(survey, blob.digest, verdict))


def _missing(store: Store) -> Iterator[Finding]:
    """The blobs that models want now and that are not there; links count as found already."""
    now = Survey()
    for model in store.models():
        if model.parsed is not None:
            now.add(model.name, model.parsed)
    for digest in sorted(now.users):
        path = f"blobs/{digest.file_name}"
        if not os.path.lexists(store.root / path):
            message = f"blob {digest} is missing"
            yield Finding("missing", path, message, digest, models=now.of(digest))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []


def _some(finding: Finding | None) -> list[Finding]:
    return [] if finding is None else [finding]
