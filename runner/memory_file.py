"""Files that lie in memory and go with who has them open: where a process may open no other, native
code can still read one of these by its path."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

if sys.platform == "linux":

    def memory_file(name: str) -> IO[bytes]:
        """An empty file to write and read. Raises OSError."""
        return os.fdopen(os.memfd_create(name), "w+b")

    @contextmanager
    def path_of(file: IO[bytes]) -> Iterator[Path]:
        """Where others of this process can open what is written, meanwhile."""
        file.flush()
        yield Path(f"/proc/self/fd/{file.fileno()}")
else:

    def memory_file(name: str) -> IO[bytes]:
        """An empty file to write and read. Raises OSError."""
        return tempfile.TemporaryFile(prefix=f"hearth-{name}-")

    @contextmanager
    def path_of(file: IO[bytes]) -> Iterator[Path]:
        """Where others of this process can open what is written, meanwhile: a copy of it. Raises
        OSError."""
        file.seek(0)
        with tempfile.TemporaryDirectory(prefix="hearth-") as folder:
            path = Path(folder) / "file"
            with path.open("wb") as copy:
                while data := file.read(1 << 20):
                    copy.write(data)
            yield path
