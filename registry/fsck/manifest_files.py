"""Checks the folder of manifests: torn ones, silently changed ones, and other files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from registry.digest import Digest
from registry.errors import InvalidName, RegistryError
from registry.fsck.findings import Finding
from registry.manifest import Manifest
from registry.manifests import ManifestFile, Manifests
from registry.names import Name
from registry.store import Store

_MAX_CHANGED_BYTES = 8  # another manifest has other digests, of 64 characters each
_MAX_ENTRIES = 200_000


@dataclass(slots=True)
class Survey:
    """What the manifests want: the models and the size of each blob."""

    models: int = 0
    users: dict[Digest, list[str]] = field(default_factory=dict)
    sizes: dict[Digest, int] = field(default_factory=dict)

    def add(self, name: Name, manifest: Manifest) -> None:
        """Count a model."""
        self.models += 1
        for layer in manifest.blobs:
            self.users.setdefault(layer.digest, []).append(name.short)
            self.sizes[layer.digest] = layer.size_bytes

    def of(self, digest: Digest) -> tuple[str, ...]:
        """The models that need a blob."""
        return tuple(sorted(self.users.get(digest, ())))


def check_manifests(store: Store, survey: Survey) -> Iterator[Finding]:
    """What is wrong with manifests; survey is filled with what can be read. Of each good one a
    copy is kept from which it can be repaired later."""
    files = Manifests(store.root / "manifests", store.root / "tmp")
    for name in files.names():
        with contextlib.suppress(FileNotFoundError):
            finding = _check(store, files, name, survey)
            if finding is not None:
                yield finding
    yield from _strays(store)


def _check(store: Store, files: Manifests, name: Name, survey: Survey) -> Finding | None:
    try:
        now = files.read(name)
        manifest = Manifest.from_bytes(now.content)
    except RegistryError as error:
        return _finding(name, error.message.removeprefix("manifest: "))
    survey.add(name, manifest)
    before = store.records.manifest(name)
    if before is not None and _is_damage(before, now):
        return _finding(name, "its content has been corrupted")
    if before != now and not store.read_only:
        store.records.keep_manifest(name, now)
    return None


def _is_damage(before: ManifestFile, now: ManifestFile) -> bool:
    """True when the change is none that a program would have written: the time of the file is
    the same, or only a few bytes differ."""
    old, new = before.content, now.content
    if old == new:
        return False
    if before.modified_ns == now.modified_ns:
        return True
    changed = sum(a != b for a, b in zip(old, new, strict=False))
    return len(old) == len(new) and changed <= _MAX_CHANGED_BYTES


def _finding(name: Name, reason: str) -> Finding:
    path = "/".join(("manifests", *name.path))
    message = f"the manifest of {name.short} is damaged: {reason}"
    return Finding("manifest", path, message, name=name, models=(name.short,))


def _strays(store: Store) -> Iterator[Finding]:
    top, seen = store.root / "manifests", 0
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(".")]
        seen += len(folders) + len(files)
        if seen > _MAX_ENTRIES:
            return
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for entry in sorted((*links, *files)):
            path = os.path.relpath(os.path.join(folder, entry), top)
            if not entry.startswith(".") and (entry in links or not _is_name(path)):
                message = f"manifests/{path} is not a model name and was left unchanged"
                yield Finding("stray", f"manifests/{path}", message)


def _is_name(path: str) -> bool:
    try:
        Name.from_path(path)
    except InvalidName:
        return False
    return True
