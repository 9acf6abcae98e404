"""The model store: Ollama's layout on disk, so that an existing store can be used in place.

    <root>/blobs/sha256-<hex>                                content, verified
    <root>/manifests/<host>/<namespace>/<model>/<tag>        which blobs make a model
    <root>/tmp/                                              files being written
    <root>/.hearth.lock                                      held by the one process that writes

Owns what is installed: listing, lookup, copy, delete. Knows nothing of networks, of
Modelfiles and of what is in a model file. A fresh store is empty: the built-in models are put
into it by modelfile.builtin.seed_builtin. Methods block on the disk and may be called from any
thread.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from registry.age import FileAges
from registry.atomic import (
    DIRECTORY_MODE,
    faults,
    make_directory,
    read_small,
    require_space,
    write_file,
)
from registry.blobs import Blobs, BlobWriter
from registry.digest import Digest
from registry.errors import (
    BlobMissing,
    InvalidManifest,
    ModelMissing,
    RegistryError,
    StoreError,
    StoreFault,
    StoreReadOnly,
)
from registry.incoming_files import PREFIX as INCOMING
from registry.incoming_files import Advance, is_incoming
from registry.lock import StoreLock
from registry.manifest import Manifest
from registry.manifests import ManifestFile, Manifests
from registry.names import Name, nearest
from registry.records import BlobOrigin, Records
from registry.transfer.journal import PartialPlan
from registry.transfer.partial import PartialFile, arrived_bytes

PARTIAL_KEEP_S = 14 * 86400.0
_STATE_LIMIT_BYTES = 1024 * 1024
_WORKSPACE = "work-"


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A name in the store. digest: of the manifest's bytes, the model's ID. fault: why it
    cannot be run, None when it can."""

    name: Name
    digest: Digest
    size_bytes: int
    modified_at: datetime
    parsed: Manifest | None
    fault: str | None = None

    @property
    def manifest(self) -> Manifest:
        """The manifest. Raises InvalidManifest when the file is torn or not a manifest."""
        if self.parsed is None:
            raise InvalidManifest(f"model {self.name.short} is damaged: {self.fault}")
        return self.parsed


class Store:
    """An open store. One process at a time may open it for writing."""

    def __init__(self, root: Path, lock: StoreLock | None) -> None:
        self.root = root
        self.read_only = lock is None
        self._lock = lock
        self._temporary = root / "tmp"
        self._change = threading.RLock()
        self.records = Records(root)
        self.ages = FileAges(self.records.directory / "clock.json")
        self._blobs = Blobs(root / "blobs", self._temporary, self._change, self.records)
        self._manifests = Manifests(root / "manifests", self._temporary)
        self._held: Counter[Digest] = Counter()

    @classmethod
    def open(cls, root: Path, read_only: bool = False) -> Store:
        """The store at root, made when it is missing. One that this user cannot write to is
        opened read-only: see read_only.

        Raises StoreLocked when another process owns it, StoreFault.
        """
        if read_only:
            return cls(root, None)
        try:
            with faults("open the model store", root.parent):
                for directory in (root, root / "blobs", root / "manifests", root / "tmp"):
                    make_directory(directory)
                lock = StoreLock(root)
        except StoreReadOnly:
            if not (root / "manifests").is_dir():
                raise
            return cls(root, None)
        store = cls(root, lock)
        store.ages.begin()
        store._sweep()
        return store

    def close(self) -> None:
        """Give the lock back. Calling it twice is allowed."""
        lock, self._lock = self._lock, None
        if lock is not None:
            self.ages.note()
            lock.release()

    def models(self) -> list[StoredModel]:
        """Every model, newest first; damaged ones are listed with their fault."""
        found = [self._load(name) for name in self._manifests.names()]
        return sorted((m for m in found if m is not None), key=lambda m: m.modified_at)[::-1]

    def names(self) -> list[Name]:
        """Every name, without reading the manifests."""
        return self._manifests.names()

    def get(self, name: Name) -> StoredModel:
        """The model of that name, whatever its case. Raises ModelMissing with near names."""
        found = self._manifests.find(name)
        stored = None if found is None else self._load(found)
        if stored is None:
            raise ModelMissing(name.short, nearest(name.short, self.names()))
        return stored

    def blob_path(self, digest: Digest) -> Path:
        """Where a blob of the store is. Raises BlobMissing."""
        if self._blobs.size(digest) is None:
            raise BlobMissing(str(digest))
        return self._blobs.path(digest)

    def has_blob(self, digest: Digest) -> bool:
        """True when the store holds the blob."""
        return self._blobs.size(digest) is not None

    def blob_size(self, digest: Digest) -> int:
        """The size of a blob in bytes. Raises BlobMissing."""
        size = self._blobs.size(digest)
        if size is None:
            raise BlobMissing(str(digest))
        return size

    def read_blob(self, digest: Digest, limit_bytes: int) -> bytes:
        """A small blob, its digest checked. Raises BlobMissing, BlobTooLarge, DigestMismatch,
        BlobDamaged, StoreFault."""
        return self._blobs.read(digest, limit_bytes)

    @contextlib.contextmanager
    def blob_writer(
        self, expected: Digest | None = None, size_bytes: int | None = None
    ) -> Iterator[BlobWriter]:
        """A writer for one blob: write(content), then commit() -> (digest, size in bytes). Not
        committed: nothing is left. size_bytes: the length, when it is known before.

        Raises StoreReadOnly, StoreFull, StoreFault; commit raises DigestMismatch.
        """
        self._require_writable("write the blob")
        with self._blobs.writer(expected, size_bytes) as writer:
            yield writer

    @contextlib.contextmanager
    def holding(self, digests: Iterable[Digest]) -> Iterator[None]:
        """Keep these blobs from being removed for the length of the block."""
        held = list(digests)
        with self._change:
            self._held.update(held)
        try:
            yield
        finally:
            with self._change:
                self._held.subtract(held)
                self._held += Counter()

    def partial(self, plan: PartialPlan) -> PartialFile:
        """The partial file of a transfer, with what an earlier one has left of it.

        Raises StoreReadOnly, StoreFull when what is missing does not fit, StoreFault.
        """
        self.require_space(plan.size_bytes - self.partial_bytes(plan))
        return PartialFile(self._temporary, plan)

    def require_space(self, needed_bytes: int) -> None:
        """Raises StoreFull when that many bytes no longer fit, StoreReadOnly."""
        self._require_writable("write the blob")
        require_space("write the blob", self._temporary, needed_bytes)

    def partial_bytes(self, plan: PartialPlan) -> int:
        """How many bytes of a transfer are kept already."""
        return arrived_bytes(self._temporary, plan)

    def adopt(self, partial: PartialFile, digest: Digest) -> None:
        """Make a complete partial file, whose content has been found to have this digest, a
        blob. Raises StoreFull, StoreFault."""
        self._blobs.adopt(partial, digest)

    def incoming_size(self, name: str) -> int:
        """The bytes of a file that waits to become a blob. Raises BlobMissing when there is none
        of that name."""
        with contextlib.suppress(OSError):
            if is_incoming(name):
                return os.lstat(self._temporary / name).st_size
        raise BlobMissing(name[:80])

    def take_incoming(self, name: str, advance: Advance) -> tuple[Digest, int]:
        """Make a file that a command has put into the folder of temporary files a blob; gives
        its digest and its size in bytes. The file is gone afterwards. See registry.incoming_files.

        Raises BlobMissing when it is not there, which tells that the command means another
        store, BlobDamaged, StoreReadOnly, StoreFull, StoreFault, and what advance raises.
        """
        self._require_writable("write the blob")
        self.incoming_size(name)
        return self._blobs.take(self._temporary / name, advance)

    def take_made(self, path: Path, advance: Advance) -> tuple[Digest, int]:
        """Make a file of a workspace a blob; gives its digest and its size in bytes. The file is
        gone afterwards. Raises as take_incoming."""
        self._require_writable("write the blob")
        return self._blobs.take(path, advance)

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """A folder for files in the making, on the file system of the blobs. It is removed at
        the end of the block, or when the store is opened the next time. Raises StoreReadOnly,
        StoreFull, StoreFault."""
        self._require_writable("write the blob")
        folder = self._temporary / f"{_WORKSPACE}{uuid.uuid4().hex}"
        with faults("write the blob", self.root):
            os.mkdir(folder, DIRECTORY_MODE)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def manifest_bytes(self, name: Name) -> bytes:
        """The manifest as it is on the disk. Raises ModelMissing, InvalidManifest, StoreFault."""
        return self._manifests.read(self.get(name).name).content

    def put_manifest(
        self, name: Name, manifest: Manifest, content: bytes | None = None
    ) -> StoredModel:
        """Install a model: from now on name means these blobs. A name that differs in case
        only is replaced. What only the replaced manifest used is removed. content: the
        manifest's own bytes where a registry gave them, so that the model keeps its ID.

        Raises BlobMissing and InvalidManifest (wrong size) before anything is written,
        StoreReadOnly, StoreFull, StoreFault.
        """
        self._require_writable("write the manifest")
        with self._change:
            for layer in manifest.blobs:
                size = self.blob_size(layer.digest)
                if size != layer.size_bytes:
                    raise InvalidManifest(
                        f"manifest: blob {layer.digest} has {size} bytes, not {layer.size_bytes}"
                    )
            stored = self._install(name, content or manifest.to_bytes())
            self._blobs.settle(layer.digest for layer in manifest.blobs)
            return stored

    def copy(self, source: Name, target: Name) -> StoredModel:
        """Give a model a second name; no blob is copied. Raises ModelMissing, InvalidManifest,
        StoreReadOnly, StoreFull, StoreFault."""
        self._require_writable("copy the model")
        with self._change:
            stored = self.get(source)
            _ = stored.manifest
            content = self._manifests.read(stored.name).content
            return self._install(target, content)

    def delete(self, name: Name) -> None:
        """Remove a name, then the blobs that no other name uses. A damaged model can be removed
        too. Raises ModelMissing, StoreReadOnly, StoreFault."""
        self._require_writable("remove the model")
        with self._change:
            found = self._manifests.find(name)
            if found is None:
                raise ModelMissing(name.short, nearest(name.short, self.names()))
            old = self._load(found)
            self._manifests.remove(found)
            self.records.drop_manifest(found)
            if old is not None and old.parsed is not None:
                self._release(old.parsed)

    @contextlib.contextmanager
    def unchanging(self) -> Iterator[set[Digest] | None]:
        """Have all changes wait for the length of the block. Gives the blobs that models and
        running work need, None while a manifest cannot be read."""
        with self._change:
            used = self._used()
            yield None if used is None else used | self._blobs.taken

    def blob_ages(self) -> dict[Digest, float]:
        """Every blob and how many seconds ago it was written. Raises StoreFault."""
        return {digest: self.ages.age_s(at_s) for digest, at_s in self._blobs.all().items()}

    def file_status(self, digest: Digest) -> os.stat_result | None:
        """What the system says of a blob's file; None when there is none."""
        with contextlib.suppress(OSError):
            return os.lstat(self._blobs.path(digest))
        return None

    def remove_blob(self, digest: Digest) -> int:
        """Remove a blob that unchanging has shown to be unused; returns the bytes freed. Raises
        StoreReadOnly, StoreFault."""
        self._require_writable("remove the blob")
        return self._blobs.remove(digest)

    def discard(self, digests: Iterable[Digest]) -> None:
        """Remove those of the blobs that no model uses and nothing holds. What cannot be removed
        now is left to registry.gc; never raises."""
        with self._change, contextlib.suppress(RegistryError):
            wanted = [digest for digest in digests if self.has_blob(digest)]
            self._blobs.settle(wanted)
            used = self._used() if wanted and not self.read_only else None
            if used is not None:
                for digest in set(wanted) - used:
                    self._blobs.remove(digest)

    def read_state(self, key: str) -> bytes | None:
        """A small file that hearth keeps beside the models, None when there is none."""
        with contextlib.suppress(OSError):
            content = read_small(self.root / f".hearth-{key}", _STATE_LIMIT_BYTES)
            return content if len(content) <= _STATE_LIMIT_BYTES else None
        return None

    def write_state(self, key: str, content: bytes) -> None:
        """Keep a small file beside the models. Raises StoreReadOnly, StoreFault."""
        self._require_writable("write the store's state")
        with faults("write the store's state", self.root, len(content)):
            write_file(self._temporary, self.root / f".hearth-{key}", content)

    def restore_manifest(self, name: Name, content: bytes) -> None:
        """Write a manifest back whose file is damaged, whether or not its blobs are there.
        Raises StoreReadOnly, StoreFull, StoreFault."""
        self._require_writable("write the manifest")
        with self._change:
            self._manifests.write(name, content)
            self.keep_copy(name)

    def keep_origin(self, name: Name, origin: BlobOrigin, media_type: str | None = None) -> None:
        """Note where the blobs of a model came from, or only those of one type. Never raises."""
        with contextlib.suppress(RegistryError):
            for layer in () if self.read_only else self.get(name).manifest.blobs:
                if media_type in (None, layer.media_type):
                    self.records.keep_origin(layer.digest, layer.size_bytes, origin)

    def keep_copy(self, name: Name) -> None:
        """Keep a copy of a manifest from which damage can be repaired. Never raises."""
        with contextlib.suppress(RegistryError, OSError):
            self.records.keep_manifest(name, self._manifests.read(name))

    def _install(self, name: Name, content: bytes) -> StoredModel:
        target = self._manifests.find(name) or name
        replaced = self._load(target)
        self._manifests.write(target, content)
        stored = self._load(target)
        if stored is None:
            raise StoreFault("write the manifest", None, ": the file was deleted meanwhile")
        self.keep_copy(target)
        if replaced is not None and replaced.parsed is not None:
            self._release(replaced.parsed)
        return stored

    def _load(self, name: Name) -> StoredModel | None:
        """The model of a name as it is written on disk; None when the file is gone."""
        try:
            file = self._manifests.read(name)
        except FileNotFoundError:
            return None
        except RegistryError as error:
            nothing = datetime.fromtimestamp(0).astimezone()
            return StoredModel(name, Digest.of(b""), 0, nothing, None, error.message)
        digest = Digest.of(file.content)
        try:
            manifest = Manifest.from_bytes(file.content)
        except InvalidManifest as error:
            return StoredModel(name, digest, 0, file.modified_at, None, error.message)
        fault = self._fault(manifest)
        if fault is not None and self._is_outdated(name, file):
            return self._load(name)
        return StoredModel(name, digest, manifest.size_bytes, file.modified_at, manifest, fault)

    def _is_outdated(self, name: Name, file: ManifestFile) -> bool:
        """True when the model was removed or replaced after its file was read, so that its blobs
        are rightly gone. Waits for a change under way."""
        with self._change:
            try:
                return self._manifests.read(name) != file
            except FileNotFoundError:
                return True
            except RegistryError:
                return False

    def _fault(self, manifest: Manifest) -> str | None:
        for layer in manifest.blobs:
            size = self._blobs.size(layer.digest)
            if size is None:
                return f"blob {layer.digest} is missing; create or pull the model again"
            if size != layer.size_bytes:
                return f"blob {layer.digest} has {size} bytes instead of {layer.size_bytes}"
        return None

    def _used(self) -> set[Digest] | None:
        """The digests that models and running builds need; None when that cannot be told."""
        used = set(self._held)
        try:
            names = self._manifests.names(strict=True)
        except StoreError:
            return None
        for name in names:
            stored = self._load(name)
            if stored is not None and stored.parsed is None:
                return None
            if stored is not None and stored.parsed is not None:
                used.update(layer.digest for layer in stored.parsed.blobs)
        return used

    def _release(self, manifest: Manifest) -> None:
        """Remove what only this manifest used."""
        used = self._used()
        if used is None:
            return
        for layer in manifest.blobs:
            if layer.digest not in used and layer.digest not in self._blobs.fresh:
                self._blobs.remove(layer.digest)

    def _sweep(self) -> None:
        """Remove what a killed process left in tmp/: this process owns the store."""
        for path in self._temporary.glob("*-*"):
            if path.name.startswith(("blob-", "file-", INCOMING)):
                with contextlib.suppress(OSError):
                    path.unlink()
            elif path.name.startswith(_WORKSPACE):
                shutil.rmtree(path, ignore_errors=True)
        self.discard(list(self._blobs.unsettled()))

    def _require_writable(self, operation: str) -> None:
        if self.read_only:
            raise StoreReadOnly(operation)
