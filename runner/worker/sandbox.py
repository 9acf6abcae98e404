"""Takes from this process, on Linux, what work on untrusted files never needs: other files, the
network, other processes. What native code is tricked into can do no more than that.

Landlock (Linux 5.13, more of it with later versions) bounds files, TCP and signals; a seccomp
filter refuses sockets, tracing, io_uring and what administers the system. Both hold for all
children and can never be taken off. Elsewhere nothing is done, and said. Knows no models.

The numbers are those of the kernel's headers: linux/landlock.h, linux/seccomp.h, linux/filter.h and
asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

_IS_LINUX = sys.platform == "linux"
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_FILE, _MAKE_FILE, _TRUNCATE, _IOCTL = 1 << 5, 1 << 8, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL  # the rest is of folders only
_RIGHTS_BY_VERSION = {1: 13, 2: 14, 3: 15, 5: 16}  # how many bits a version knows
_TCP, _TCP_VERSION = 0b11, 4  # to bind, to connect
_SCOPES, _SCOPES_VERSION = 0b11, 6  # abstract sockets and signals of processes outside
_PATH_ONLY = 0o10000000 | 0o2000000  # O_PATH, O_CLOEXEC of asm-generic/fcntl.h
_CODE = _EXECUTE | _READ | _LIST
_DEVICE = _READ | _WRITE | _LIST | _IOCTL
_OUTPUT = _READ | _WRITE | _LIST | _REMOVE_FILE | _MAKE_FILE | _TRUNCATE

_SYSTEM = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/sys"),
    *("/sys/devices", "/sys/fs/cgroup", "/sys/kernel/mm", "/sys/class", "/sys/bus"),
    *("/proc/driver/nvidia", "/sys/module/nvidia", "/opt/rocm", "/etc/localtime"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/dri", "/dev/kfd")

_ALLOW, _REFUSE, _MISSING = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38  # EPERM, ENOSYS
_LOAD, _EQUAL, _GREATER_OR_EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16  # offsets in seccomp_data; the first argument's half
_X32_BIT = 0x40000000
_NAMESPACES = 0x7E020080  # the CLONE_NEW flags
_OPENS_IO_URING = (425, 426, 427)
_MOUNTS = (428, 429, 430, 431, 432, 433, 442)
_EVERYWHERE = (*_OPENS_IO_URING, *_MOUNTS, 438, 440)  # pidfd_getfd, process_madvise
_REFUSED: dict[str, tuple[int, tuple[int, ...]]] = {
    # socket, connect, accept, bind, listen, accept4; ptrace, process_vm_*, kcmp; bpf, perf, faults;
    # keys; namespaces and mounts; modules, kexec, swap, time, names, quotas, ports, handles
    "x86_64": (
        0xC000003E,
        (
            *(41, 42, 43, 49, 50, 288, 101, 310, 311, 312, 321, 298, 323, 248, 249, 250),
            *(272, 308, 165, 166, 155, 161, 175, 313, 176, 246, 320, 167, 168, 169, 163, 164),
            *(227, 305, 170, 171, 179, 172, 173, 304),
        ),
    ),
    "aarch64": (
        0xC00000B7,
        (
            *(198, 203, 202, 200, 201, 242, 117, 270, 271, 272, 280, 241, 282, 217, 218, 219),
            *(97, 268, 40, 39, 41, 51, 105, 273, 106, 104, 294, 224, 225, 142, 89, 170),
            *(112, 266, 161, 162, 60, 265),
        ),
    ),
}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_CLONE = {"x86_64": (56, 435, 302), "aarch64": (220, 435, 261)}  # clone, clone3, prlimit64


def enter_sandbox(
    readable: Iterable[str | Path],
    writable: Iterable[str | Path] = (),
    *,
    connect: Callable[[], None] | None = None,
    keep_network: bool = False,
) -> list[str]:
    """From now on this process reads only Python's and the system's libraries and readable, writes
    only in the folders writable, and reaches no network and no other process. Returns what could
    not be had, in words; empty: all of it holds. Call it before there are other threads.

    connect: called when files are out of reach and sockets are not yet; the threads that it starts
    are confined too, and the sockets that it opens stay. keep_network: they do not suffice.

    HEARTH_SANDBOX=0 in the environment leaves it out. isolation.isolate comes before: the kernel
    confines only who can gain no privileges."""
    left_out = ""
    if os.environ.get("HEARTH_SANDBOX", "1") == "0":
        left_out = "HEARTH_SANDBOX=0"
    elif not _IS_LINUX:
        left_out = f"no sandbox on {sys.platform}"
    if left_out:
        if connect is not None:
            connect()
        return [left_out]
    if threading.active_count() > 1:
        raise RuntimeError("other threads would stay outside of the sandbox")
    libc = ctypes.CDLL(None, use_errno=True)
    missing = [_restrict_files(libc, readable, writable, tcp=connect is not None)]
    if connect is not None:
        connect()
    if keep_network:
        missing.append("the network stays open for the GPUs of one model")
    else:
        missing.append(_filter_calls(libc, threads=connect is not None))
    return [text for text in missing if text]


def _restrict_files(
    libc: ctypes.CDLL,
    readable: Iterable[str | Path],
    writable: Iterable[str | Path],
    *,
    tcp: bool,
) -> str:
    """tcp: it stays; the filter of calls comes later and takes it."""
    version = libc.syscall(_CREATE_RULESET, None, 0, _GET_VERSION)
    if version < 1:
        return "the kernel has no Landlock: files of this user stay readable"
    bits = max(count for since, count in _RIGHTS_BY_VERSION.items() if since <= version)
    known = (1 << bits) - 1
    refused = _TCP if version >= _TCP_VERSION and not tcp else 0
    scopes = _SCOPES if version >= _SCOPES_VERSION else 0
    attributes = struct.pack("=QQQ", known, refused, scopes)
    size = 24 if scopes else 16 if refused else 8
    ruleset = libc.syscall(_CREATE_RULESET, attributes, size, 0)
    if ruleset < 0:
        return f"Landlock refused its rules: {os.strerror(ctypes.get_errno())}"
    try:
        for path in (*_SYSTEM, *_interpreter(), *readable):
            _allow(libc, ruleset, path, _CODE & known)
        for device in (*map(Path, _DEVICES), *Path("/dev").glob("nvidia*")):
            _allow(libc, ruleset, device, _DEVICE & known)
        for folder in writable:
            _allow(libc, ruleset, folder, _OUTPUT & known)
        if libc.syscall(_RESTRICT_SELF, ruleset, 0) < 0:
            return f"Landlock did not take hold: {os.strerror(ctypes.get_errno())}"
    finally:
        os.close(ruleset)
    return ""


def _interpreter() -> list[str]:
    """Where Python and its packages are, and the libraries that the daemon's user named."""
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return [sys.prefix, sys.base_prefix, *filter(None, (*sys.path, *libraries))]


def _allow(libc: ctypes.CDLL, ruleset: int, path: str | Path, rights: int) -> None:
    """What does not exist needs no right."""
    try:
        opened = os.open(path, _PATH_ONLY)
    except OSError:
        return
    try:
        if not os.path.isdir(f"/proc/self/fd/{opened}"):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, opened)
        if libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0) < 0:
            raise OSError(ctypes.get_errno(), "Landlock refused a rule", str(path))
    finally:
        os.close(opened)


def _filter_calls(libc: ctypes.CDLL, *, threads: bool) -> str:
    """threads: there are others than this one, which it shall hold for too."""
    machine = platform.machine()
    if machine not in _REFUSED:
        return f"no seccomp filter for {machine}: the network stays open"
    program = b"".join(_program(machine))
    code = ctypes.create_string_buffer(program, len(program))
    filter_ = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    if threads:
        failed = libc.syscall(_SECCOMP[machine], _SET_MODE_FILTER, _ALL_THREADS, filter_) != 0
    else:
        failed = libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, filter_, 0, 0) < 0
    if failed:
        return f"seccomp refused its filter: {os.strerror(ctypes.get_errno())}"
    return ""


def _program(machine: str) -> Sequence[bytes]:
    """The filter in the kernel's classic BPF. Every test skips over one return."""
    architecture, refused = _REFUSED[machine]
    clone, clone3, prlimit = _CLONE[machine]
    lines = [
        _line(_LOAD, _ARCHITECTURE),
        _line(_EQUAL, architecture, 1, 0),
        _line(_RETURN, _REFUSE),
        _line(_LOAD, _NUMBER),
        _line(_GREATER_OR_EQUAL, _X32_BIT, 0, 1),
        _line(_RETURN, _REFUSE),
    ]
    for number in (*refused, *_EVERYWHERE):
        lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, _REFUSE)]
    # glibc falls back to clone, whose flags a filter can read.
    lines += [_line(_EQUAL, clone3, 0, 1), _line(_RETURN, _MISSING)]
    lines += [_line(_EQUAL, clone, 0, 3), _line(_LOAD, _ARGUMENT)]
    lines += [_line(_ANY_BIT, _NAMESPACES, 0, 1), _line(_RETURN, _REFUSE)]
    lines += [_line(_LOAD, _NUMBER)]
    # The limits of other processes
    lines += [_line(_EQUAL, prlimit, 0, 3), _line(_LOAD, _ARGUMENT)]
    lines += [_line(_EQUAL, 0, 1, 0), _line(_RETURN, _REFUSE)]
    return [*lines, _line(_RETURN, _ALLOW)]


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
