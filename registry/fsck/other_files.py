"""Checks everything besides the content: modes, foreign files, leftovers of transfers."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from registry.age import FileAges
from registry.fsck.findings import Finding
from registry.ownership import own_uid, permissions
from registry.store import PARTIAL_KEEP_S, Store
from registry.transfer.partial import JOURNAL, PREFIX

_OTHERS_WRITE = 0o022
_SETTLE_S = 3600.0  # a transfer makes the two files one after the other
_OWN_TEMPORARY = ("blob-", "file-", "incoming-", "work-", "taken-", PREFIX)


def check_modes(store: Store) -> Iterator[Finding]:
    """Files and folders of ours that other users may change. Ollama's 0644 and 0755 are fine,
    and a file with a second name is also another program's."""
    yield from _mode(store, store.root)
    for top in ("blobs", "manifests", "tmp"):
        for folder, folders, files in os.walk(store.root / top):
            yield from _mode(store, Path(folder))
            folders[:] = [name for name in folders if not name.startswith(".")]
            for entry in files:
                yield from _mode(store, Path(folder, entry))


def wanted_mode(status: os.stat_result) -> int:
    """The mode that a file or folder should have: others cannot write, the owner can read."""
    owner = 0o700 if stat.S_ISDIR(status.st_mode) else 0o400
    return (permissions(status) & ~_OTHERS_WRITE) | owner


def _mode(store: Store, path: Path) -> Iterator[Finding]:
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        mode = permissions(status)
        is_ours = status.st_uid == own_uid() and not stat.S_ISLNK(status.st_mode)
        is_shared = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
        if is_ours and not is_shared and wanted_mode(status) != mode:
            shown = str(path.relative_to(store.root))
            why = "other users can modify it" if mode & _OTHERS_WRITE else "its owner has no access"
            yield Finding("mode", shown, f"{shown} has the mode {mode:04o}: {why}")


def check_temporary(store: Store, keep_s: float = PARTIAL_KEEP_S) -> Iterator[Finding]:
    """Partial transfers that cannot or will not be resumed, and files that are not ours."""
    folder = store.root / "tmp"
    names = set(_names(folder))
    for name in sorted(names):
        if not name.startswith(_OWN_TEMPORARY):
            yield Finding(
                "stray",
                f"tmp/{name}",
                f"tmp/{name} was not created by hearth and was left unchanged",
            )
        elif name.startswith(PREFIX):
            reason = _dangling(store.ages, folder / name, names, keep_s)
            if reason is not None:
                yield Finding("partial", f"tmp/{name}", f"tmp/{name} is {reason}")


def _dangling(ages: FileAges, path: Path, names: set[str], keep_s: float) -> str | None:
    try:
        age_s = ages.age_s(path.lstat().st_mtime)
    except OSError:
        return None
    name = path.name
    is_journal = name.endswith(JOURNAL)
    other = name.removesuffix(JOURNAL) if is_journal else f"{name}{JOURNAL}"
    if age_s > _SETTLE_S and other not in names:
        return (
            "a journal without its file"
            if is_journal
            else ("a partial transfer without its journal")
        )
    if age_s > keep_s:
        return f"a partial transfer abandoned for {age_s / 86400:.0f} days"
    return None


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    return []
