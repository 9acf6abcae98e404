"""Files of saved slots, sealed. Each owner has a folder. Knows no workers."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from runner.errors import InvalidRequest
from runner.library.files import make_directory, open_regular
from runner.library.sealed_file import UNFINISHED, Header, SealBroken, SealedReader, SealedWriter
from runner.server.errors import HttpError

MAGIC = b"hearth slot 2\n"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ -]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SlotFolder:
    """The files of one owner. limit_bytes: of all owners together, half of it for each one."""

    root: Path
    owner: str
    secret: bytes
    limit_bytes: int

    @property
    def path(self) -> Path:
        """Where they are."""
        return self.root / self.owner.replace(" ", "-") if self.owner else self.root

    def create(self, name: str, header: Header, size_bytes: int) -> SealedWriter:
        """Begin a file with a state of so many bytes; only one at a time. Raises InvalidRequest
        for the name, HttpError 413 when files take too much, OSError."""
        target = self._target(name)
        make_directory(self.path)
        for old in self.path.glob(f"{UNFINISHED}*"):
            old.unlink()
        replaced = target.stat().st_size if target.is_file() else 0
        own, everybodys = self.path.glob("*"), self.root.rglob("*")
        for files, limit in ((own, self.limit_bytes // 2), (everybodys, self.limit_bytes)):
            used = sum(file.stat().st_size for file in files if file.is_file())
            if used - replaced + size_bytes > limit:
                raise HttpError(
                    413,
                    "slots_full",
                    f"saved slots may take {limit} bytes and take {used}, this one {size_bytes}:"
                    " save it under the name of one that is not needed, or delete files",
                )
        return SealedWriter(target, MAGIC, self.secret, header)

    def open(self, name: str) -> SealedReader:
        """A file, found to be whole and this daemon's. Raises InvalidRequest."""
        target = self._target(name)
        try:
            file = os.fdopen(open_regular(target), "rb")
        except OSError as error:
            raise InvalidRequest(f"no slot is saved as {name!r}", param="filename") from error
        try:
            return SealedReader(file, MAGIC, self.secret)
        except SealBroken as error:
            file.close()
            raise InvalidRequest(f"{name!r} {error}", param="filename") from None

    def _target(self, name: str) -> Path:
        if _NAME.fullmatch(name) is None:
            raise InvalidRequest(
                f"{name[:64]!r} is not a valid file name: use at most 200 letters, digits, '.',"
                " '_', '-' and spaces, and no folders",
                param="filename",
            )
        return self.path / name
