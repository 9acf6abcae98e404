"""Brings local files into the daemon's store.

On this machine they are put into the store's folder without being sent and are read once, by the
daemon, which verifies them; see cli/staged_file.py. To another machine, or another user's daemon,
they are hashed and sent unless the store has them.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.errors import CliError
from cli.staged_file import staged, store_folder
from cli.terminal import status
from runner.file_system import read_ahead

if TYPE_CHECKING:
    from cli.progress import ProgressView
    from runner.client import Client

CHUNK_BYTES = 1 << 20
_SHOW_EVERY_S = 0.1
_BLOB = re.compile(r"sha256-[0-9a-f]{64}", re.ASCII)

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class BlobUploader:
    """How files reach the store. store: its folder, None when they must be sent. copy: never by
    a link."""

    client: Client
    view: ProgressView
    store: Path | None
    copy: bool = False

    def bring_all(self, files: Mapping[str, Path]) -> dict[str, str]:
        """Bring files into the store; gives their digests. Raises CliError, ClientError."""
        return {name: self.bring(path) for name, path in files.items()}

    def bring(self, path: Path) -> str:
        """Bring a file into the store; gives its digest. Raises CliError, ClientError."""
        known = self._in_store(path)
        if known is not None:
            return known
        if self.store is not None:
            digest = self._place(path, self.store)
            if digest is not None:
                return digest
        return self._send(path)

    def create(self, body: Mapping[str, Any]) -> None:
        """Have a model built. Ctrl-C and errors close the request, which ends the work. Raises
        ClientError."""
        with closing(self.client.create(body)) as lines:
            for line in lines:
                self.view.show(line)

    def _in_store(self, path: Path) -> str | None:
        """The digest of a file that is a blob of the store, whose name tells it."""
        if self.store is None or path.resolve().parent != (self.store / "blobs").resolve():
            return None
        if _BLOB.fullmatch(path.resolve().name) is None:
            return None
        digest = path.resolve().name.replace("-", ":")
        return digest if self.client.has_blob(digest) else None

    def _place(self, path: Path, store: Path) -> str | None:
        """The digest that the daemon found; None when it has another store."""
        from runner.client import ClientError

        advance = self._meter(f"copying {path.name}", path)
        with staged(path, store, self.copy, advance) as name:
            try:
                with closing(self.client.take_blob(name)) as lines:
                    for line in lines:
                        if line.get("status") == "success":
                            return str(line["digest"])
                        self.view.show({**line, "status": f"verifying {path.name}"})
            except ClientError as error:
                if error.status not in (400, 404, 405) or error.code == "model_invalid":
                    raise
        return None

    def _send(self, path: Path) -> str:
        name = digest(path, self._meter(f"reading {path.name}", path))
        if not self.client.has_blob(name):
            send(self.client, path, name, self._meter(f"sending {path.name}", path))
        return name

    def _meter(self, step: str, path: Path) -> Advance:
        """A callback that counts bytes and shows the sum, a few times a second."""
        total, done, shown_s = path.stat().st_size, 0, 0.0

        def advance(count: int) -> None:
            nonlocal done, shown_s
            done += count
            now_s = time.monotonic()
            if done >= total or now_s - shown_s >= _SHOW_EVERY_S:
                shown_s = now_s
                self.view.show({"status": step, "completed": done, "total": total})

        return advance


@contextmanager
def uploader(client: Client, copy: bool = False, as_json: bool = False) -> Iterator[BlobUploader]:
    """How files reach the daemon, shown until the end of the block."""
    from cli.addresses import is_local
    from cli.progress import style_for, view_for
    from runner.settings import load

    settings = load()
    store = store_folder(settings, client.base_url) if is_local(settings.host) else None
    view = view_for(style_for(as_json, quiet=False))
    try:
        yield BlobUploader(client, view, store, copy)
    except KeyboardInterrupt:
        view.close()
        status("stopped; the incomplete model was removed")
        raise
    finally:
        view.close()


def digest(path: Path, advance: Advance) -> str:
    """The file's "sha256:<hex>". advance gets the number of bytes done."""
    hasher = hashlib.sha256()
    for chunk in _chunks(path, advance):
        hasher.update(chunk)
    return f"sha256:{hasher.hexdigest()}"


def send(client: Client, path: Path, name: str, advance: Advance) -> None:
    """Upload the file under its digest name. Raises CliError when it changed since hashing."""
    size_bytes = path.stat().st_size
    sent = 0

    def content() -> Iterator[bytes]:
        nonlocal sent
        for chunk in _chunks(path, advance):
            sent += len(chunk)
            if sent > size_bytes:
                raise CliError(f"{path} grew while being read; try again when it is complete")
            yield chunk
        if sent < size_bytes:
            raise CliError(f"{path} shrank while being read; try again when it is complete")

    client.upload_blob(name, content(), size_bytes)


def _chunks(path: Path, advance: Advance) -> Iterator[bytes]:
    with path.open("rb") as file:
        read_ahead(file.fileno())
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
            advance(len(chunk))
