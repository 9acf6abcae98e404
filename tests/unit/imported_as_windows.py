"""`python -P -m tests.unit.imported_as_windows`: imports every product module as Windows would have
it, and says which cannot be imported.

The modules and names that Windows' Python lacks are taken away, those that only it has are there
but empty, and sys.platform is win32. Other
people's packages, which have files of their own for Windows, are imported as they are before.
"""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
import pkgutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGES = ("runner", "modelfile", "registry", "kernels", "cli")
NO_MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios",
              "tty")  # fmt: skip
NO_NAMES = {
    os: ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_PATH", "O_NOATIME",
         "POSIX_FADV_SEQUENTIAL", "chown", "copy_file_range", "fchmod", "fork", "getegid",
         "geteuid", "getgid", "getuid", "killpg", "memfd_create", "mkfifo", "posix_fadvise",
         "pread", "preadv", "pwrite", "sched_getaffinity", "sendfile", "setsid", "statvfs",
         "sysconf", "uname"),
    signal: ("SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGTSTP",
             "SIGUSR1", "SIGWINCH", "ITIMER_PROF", "setitimer", "pthread_sigmask"),
    socket: ("AF_NETLINK", "AF_UNIX", "MSG_DONTWAIT", "SCM_RIGHTS", "SOCK_CLOEXEC",
             "SOCK_NONBLOCK", "SO_REUSEPORT", "recv_fds", "send_fds"),
    mmap: ("MAP_ANONYMOUS", "MAP_PRIVATE", "MAP_SHARED", "MADV_SEQUENTIAL", "PROT_READ",
           "PROT_WRITE"),
}  # fmt: skip


class _Absent:
    """Finds none of the modules that Windows does not have."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if name in NO_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def product_modules() -> Iterator[str]:
    """The names of all modules but entry points."""
    for package in PACKAGES:
        yield package
        for found in pkgutil.walk_packages(
            importlib.import_module(package).__path__, f"{package}.", lambda name: None
        ):
            if not found.name.endswith(".__main__"):
                yield found.name


def main() -> int:
    """Prints a line for each module that cannot be imported; 1 if there is one."""
    names = list(product_modules())
    missing = set()  # what needs packages that are not installed here
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # the backend of PyTorch has an error of its own
            missing.add(name)
    for name in [*sys.modules]:
        if name.partition(".")[0] in PACKAGES:
            del sys.modules[name]
    for module, absent in NO_NAMES.items():
        for each in absent:
            with contextlib.suppress(AttributeError):
                delattr(module, each)
    for each in NO_MODULES:
        sys.modules.pop(each, None)
    for each in ("_winapi", "msvcrt"):
        sys.modules[each] = ModuleType(each)
    os.__dict__.update(O_BINARY=0x8000, O_NOINHERIT=0x80)
    subprocess.__dict__.update(
        CREATE_NEW_PROCESS_GROUP=0x200, CREATE_NO_WINDOW=0x8000000, DETACHED_PROCESS=8
    )
    sys.meta_path.insert(0, _Absent())  # type: ignore[arg-type]
    sys.platform = "win32"
    faults = 0
    for name in names:
        if name in missing:
            continue
        try:
            importlib.import_module(name)
        except Exception as error:
            faults += 1
            print(f"{name}: {type(error).__name__}: {error}")
    print(f"{len(names)} modules, {len(missing)} of them need packages that are not here")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
