"""A disk whose n-th write, fsync, rename, ... fails, put in the place of os in registry."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from registry import atomic, blobs, copies, descriptors, lock, manifests, records, store, usage
from registry.foreign import link
from registry.fsck import repair
from registry.transfer import journal, partial

_MODULES = (atomic, blobs, copies, descriptors, manifests)
CHANGING = ("write", "fsync", "replace", "unlink", "mkdir", "rmdir")
EVERYWHERE = (atomic, blobs, copies, descriptors, journal, link, lock, manifests, repair, partial,
              records, store, usage)  # fmt: skip
EVERY_CALL = (*CHANGING, "open", "pwrite", "pread", "ftruncate", "link", "scandir", "chmod")


class FaultyDisk:
    """os, but the call number fail_at (from 1) of the counted functions fails."""

    def __init__(self, fail_at: int | None, number: int, counted: tuple[str, ...]) -> None:
        self.calls = 0
        self._fail_at = fail_at
        self._errno = number
        self._counted = counted

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self._counted:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self._fail_at:
                raise OSError(self._errno, os.strerror(self._errno))
            return real(*args, **kwargs)

        return call


@contextmanager
def faulty_disk(
    fail_at: int | None,
    number: int = errno.ENOSPC,
    counted: tuple[str, ...] = CHANGING,
    modules: tuple[ModuleType, ...] = _MODULES,
) -> Iterator[FaultyDisk]:
    """Let the fail_at-th counted system call of the registry fail with errno number."""
    disk = FaultyDisk(fail_at, number, counted)
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(module, "os", disk)
        yield disk
