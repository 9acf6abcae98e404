"""Modules as Windows would have them, with fakes of what only Windows has."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

ERROR_LOCK_VIOLATION = 33


class Winapi(ModuleType):
    """_winapi, whose handles are descriptors."""

    GENERIC_READ, GENERIC_WRITE, OPEN_EXISTING = 0x80000000, 0x40000000, 3
    INFINITE, WAIT_OBJECT_0 = 0xFFFFFFFF, 0

    def __init__(self) -> None:
        super().__init__("_winapi")
        self.shares: list[int] = []

    def CreateFile(self, *given: Any) -> int:
        """What fileapi.h says of the dispositions."""
        path, access, share, _, disposition, _, _ = given
        self.shares.append(share)
        reads, writes = access & self.GENERIC_READ, access & self.GENERIC_WRITE
        flags = os.O_RDWR if reads and writes else os.O_WRONLY if writes else os.O_RDONLY
        flags |= {1: os.O_CREAT | os.O_EXCL, 2: os.O_CREAT | os.O_TRUNC, 3: 0, 4: os.O_CREAT,
                  5: os.O_TRUNC}[disposition]  # fmt: skip
        return os.open(path, flags, 0o600)


class Kernel(SimpleNamespace):
    """kernel32: notes its calls; what answers does not name gives 1."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(calls=[], last_error=0, functions={}, answers=answers)

    def __getattr__(self, name: str) -> Any:
        if name not in self.functions:
            found = mock.Mock(side_effect=lambda *given: self._call(name, given))
            self.functions[name] = found
        return self.functions[name]

    def error(self) -> int:
        """What get_last_error says."""
        return int(self.last_error)

    def _call(self, name: str, given: tuple[Any, ...]) -> Any:
        self.calls.append((name, given))
        answer = self.answers.get(name, 1)
        return answer(*given) if callable(answer) else answer


@contextmanager
def as_windows(
    name: str, kernel: Kernel | None = None, **modules: ModuleType
) -> Iterator[ModuleType]:
    """A copy of the module name, within the block."""
    kernel = kernel or Kernel()
    msvcrt = ModuleType("msvcrt")
    msvcrt.__dict__.update(
        open_osfhandle=lambda handle, flags: handle, get_osfhandle=lambda descriptor: descriptor
    )
    fakes: dict[str, ModuleType] = {"msvcrt": msvcrt, "_winapi": Winapi(), **modules}
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with (
        mock.patch.dict(sys.modules, fakes),
        mock.patch.object(sys, "platform", "win32"),
        mock.patch.object(os, "O_NOINHERIT", 0, create=True),
        mock.patch.object(os, "O_BINARY", 0, create=True),
        mock.patch.object(signal, "SIGBREAK", signal.SIGUSR2, create=True),
        mock.patch.object(ctypes, "WinDLL", create=True, return_value=kernel),
        mock.patch.object(ctypes, "get_last_error", kernel.error, create=True),
        mock.patch.object(ctypes, "WinError", lambda code: OSError(code, "it failed"), create=True),
    ):
        spec.loader.exec_module(module)
        yield module
