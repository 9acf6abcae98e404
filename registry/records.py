"""What hearth keeps beside the models so that damage can be found and repaired.

    <root>/.hearth/blobs/<hex>               where a blob came from
    <root>/.hearth/manifests/<path>          a copy of a manifest with the time of its file

Owns the two formats. All of it is a convenience: a record that is missing, torn or outdated says
nothing and stops nothing, so nothing is synced and faults of the disk are passed over.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.atomic import read_regular, write_unsynced
from registry.digest import Digest
from registry.errors import BlobDamaged
from registry.manifest import MAX_MANIFEST_BYTES
from registry.manifests import ManifestFile
from registry.names import Name

FOLDER = ".hearth"
MIN_BLOB_BYTES = 256 * 1024  # smaller ones come with their model
_MAX_BLOB_RECORD_BYTES = 8 << 20
_MAX_HEADER_BYTES = 16 * 1024
_MAX_ORIGIN_CHARS = 4096
_VERSION = 1
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class BlobOrigin:
    """Where a blob came from: what the user wrote for the pull. insecure: as he allowed. recipe:
    of a blob that was made here, the text for the files that it was made of."""

    reference: str
    insecure: bool = False
    recipe: str | None = None


class Records:
    """The records of one store. Every method is safe against any content and never raises."""

    __slots__ = ("directory",)

    def __init__(self, root: Path) -> None:
        self.directory = root / FOLDER

    def origin(self, digest: Digest) -> BlobOrigin | None:
        """Where a blob came from; None for nothing that can be trusted."""
        content = self._read(self._blob_path(digest), _MAX_BLOB_RECORD_BYTES)
        return None if content is None else _parse_origin(content)

    def keep_origin(self, digest: Digest, size_bytes: int, origin: BlobOrigin) -> None:
        """Note where a blob came from."""
        is_worth_it = size_bytes >= MIN_BLOB_BYTES or origin.recipe is not None
        if is_worth_it and self.origin(digest) != origin:
            self._write(self._blob_path(digest), _origin_bytes(size_bytes, origin))

    def drop_blob(self, digest: Digest) -> None:
        """Forget a blob."""
        with contextlib.suppress(OSError):
            os.unlink(self._blob_path(digest))

    def sweep(self, age_s: Callable[[float], float], keep_s: float) -> None:
        """Remove what a killed process left half written and is older than keep_s. age_s: of a file
        by its time."""
        for folder, _, names in os.walk(self.directory):
            for name in names:
                with contextlib.suppress(OSError):
                    path = Path(folder, name)
                    if name.startswith(".") and age_s(path.lstat().st_mtime) > keep_s:
                        path.unlink()

    def blobs(self) -> Iterator[Digest]:
        """The digests that have a record."""
        with contextlib.suppress(OSError), os.scandir(self.directory / "blobs") as entries:
            for entry in entries:
                if _HEX.fullmatch(entry.name):
                    yield Digest(entry.name)

    def manifest(self, name: Name) -> ManifestFile | None:
        """The copy of a manifest; None for none that is whole."""
        limit = MAX_MANIFEST_BYTES + _MAX_HEADER_BYTES
        content = self._read(self._manifest_path(name), limit)
        return None if content is None else _parse_manifest(content)

    def keep_manifest(self, name: Name, record: ManifestFile) -> None:
        """Keep a copy of a manifest."""
        facts = {
            "version": _VERSION,
            "digest": Digest.of(record.content).hex,
            "modified_ns": record.modified_ns,
        }
        self._write(self._manifest_path(name), _header(facts) + record.content)

    def drop_manifest(self, name: Name) -> None:
        """Forget a manifest, and the folders that this leaves empty."""
        path = self._manifest_path(name)
        with contextlib.suppress(OSError):
            os.unlink(path)
            for parent in path.parents[:3]:
                os.rmdir(parent)

    def _blob_path(self, digest: Digest) -> Path:
        return self.directory / "blobs" / digest.hex

    def _manifest_path(self, name: Name) -> Path:
        return self.directory.joinpath("manifests", *(part.lower() for part in name.path))

    def _read(self, path: Path, limit_bytes: int) -> bytes | None:
        try:
            content = read_regular(path, limit_bytes)
        except (OSError, BlobDamaged):
            return None
        return content if len(content) <= limit_bytes else None

    def _write(self, path: Path, content: bytes) -> None:
        """Replace a record. Two writers at once leave one of their records."""
        with contextlib.suppress(OSError):
            write_unsynced(path, content)


def _origin_bytes(size_bytes: int, origin: BlobOrigin) -> bytes:
    facts = {
        "version": _VERSION,
        "size": size_bytes,
        "origin": origin.reference[:_MAX_ORIGIN_CHARS],
        "insecure": origin.insecure,
        "recipe": origin.recipe,
    }
    content = _header(facts)
    return content + struct.pack("<I", zlib.crc32(content))


def _parse_origin(content: bytes) -> BlobOrigin | None:
    """Between the first line and the checksum of all, stores of hearth 0.1 have checksums of the
    blob's chunks, which say nothing of its origin."""
    body = content[:-4]
    if content[-4:] != struct.pack("<I", zlib.crc32(body)):
        return None
    facts, _ = _split(body)
    text, recipe = facts.get("origin"), facts.get("recipe")
    if not isinstance(text, str):
        return None
    insecure = facts.get("insecure") is True
    return BlobOrigin(text, insecure, recipe if isinstance(recipe, str) else None)


def _parse_manifest(content: bytes) -> ManifestFile | None:
    facts, rest = _split(content)
    modified = facts.get("modified_ns")
    if type(modified) is not int or facts.get("digest") != Digest.of(rest).hex:
        return None
    return ManifestFile(rest, modified)


def _header(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, separators=(",", ":")).encode("ascii") + b"\n"


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The facts of the header line and what follows it; no facts when it is no such file."""
    line, _, rest = content.partition(b"\n")
    try:
        facts = json.loads(line) if len(line) <= _MAX_HEADER_BYTES else None
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or facts.get("version") != _VERSION:
        return {}, b""
    return facts, rest
