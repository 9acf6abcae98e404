"""The store of models and the folder of computed prompts: their disk, their health."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from cli.doctor.child import ChildFailed, ask
from cli.doctor.finding import Finding, ok, problem, warning
from cli.render import size
from runner.file_system import drop_cached, free_names, own_uid, permissions
from runner.settings import Settings

_FULL_BYTES, _SCARCE_BYTES = 256 << 20, 4 << 30
_TEST_BYTES, _CHUNK_BYTES = 32 << 20, 4 << 20
_SLOW_BYTES_PER_S = 50e6  # a model of 4 GB takes more than a minute
_REMOTE = ("nfs", "cifs", "smb", "fuse", "9p", "sshfs", "ceph", "glusterfs")


def check_disk(settings: Settings) -> Iterator[Finding]:
    """The disk of the store: what is free, of which kind, how fast."""
    folder = _existing(settings.models_dir)
    usage = shutil.disk_usage(folder)
    mount, kind = _file_system(folder)
    text = f"{size(usage.free)} of {size(usage.total)} free at {folder}, {kind}"
    more_room = "hearth gc; hearth rm MODEL; or set HEARTH_MODELS to a folder on another disk"
    if free_names(folder) == 0:
        yield problem("disk", f"{text}, but no more files can be created", more_room)
    elif _is_read_only(folder):
        text += ": nothing can be written there, so no model can be pulled, made or removed"
        mend = f"sudo mount -o remount,rw {mount}, or set HEARTH_MODELS to another folder"
        yield warning("disk", text, mend)
        return
    elif usage.free < _FULL_BYTES:
        yield problem("disk", f"{text}: too little to pull a model", more_room)
    elif usage.free < _SCARCE_BYTES:
        yield warning("disk", f"{text}: few models fit", more_room)
    else:
        yield ok("disk", text)
    if usage.free < _FULL_BYTES + _TEST_BYTES or not os.access(folder, os.W_OK):
        return
    written, read = measured(folder)
    text = f"writes {size(written)}/s, reads {size(read)}/s"
    if read < _SLOW_BYTES_PER_S or kind.startswith(_REMOTE):
        mend = "set HEARTH_MODELS to a folder on a local disk"
        yield warning("disk speed", f"{text} ({kind}): models load slowly", mend)
    else:
        yield ok("disk speed", text)


def _is_read_only(folder: Path) -> bool:
    """Whether the disk is mounted so, or by a failed disk has become so."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return error.errno == errno.EROFS
    return False


def measured(folder: Path, size_bytes: int = _TEST_BYTES) -> tuple[float, float]:
    """Bytes per second of writing a nameless file through to the disk, and of reading it back
    without the system's cache (with it where it cannot be dropped)."""
    block = os.urandom(_CHUNK_BYTES)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        began_s = time.perf_counter()
        for _ in range(0, size_bytes, _CHUNK_BYTES):
            file.write(block)
        os.fsync(file.fileno())
        written_s = time.perf_counter() - began_s
        drop_cached(file.fileno())
        file.seek(0)
        began_s, done = time.perf_counter(), 0
        while content := file.read(_CHUNK_BYTES):
            done += len(content)
        read_s = time.perf_counter() - began_s
    return done / max(written_s, 1e-9), done / max(read_s, 1e-9)


def check_store(settings: Settings) -> Iterator[Finding]:
    """Whether every model has its files, of the right sizes: hearth fsck --quick without the
    daemon."""
    root = settings.models_dir
    if not root.exists():
        yield ok("store", f"no models yet; {root} is made by the first command")
        return
    try:
        found = ask("registry.fsck", str(root.absolute()))
    except ChildFailed as failure:
        yield problem("store", f"{root} cannot be read: {failure}", f"ls -la {root}")
        return
    damage = [each for each in found["findings"] if each["damage"]]
    for each in damage:
        needed = f"; needed by {', '.join(each['models'])}" if each["models"] else ""
        yield problem("store", each["message"] + needed, "hearth fsck --repair")
    for each in found["findings"]:
        if each["kind"] == "mode":
            yield warning("store", each["message"], "hearth fsck --repair")
    if not damage:
        stray = sum(each["kind"] in ("partial", "stray") for each in found["findings"])
        left = f"; {stray} files that no model needs (hearth gc)" if stray else ""
        models = f"{found['models']} model{'' if found['models'] == 1 else 's'}"
        yield ok("store", f"{models}, {size(found['size'])} in {root}{left}")


def check_prompts(settings: Settings) -> Iterator[Finding]:
    """The folder of computed prompts."""
    folder = settings.prefixes_dir
    if settings.cache_size == 0:
        yield ok("prompts", "computed prompts are not saved: HEARTH_CACHE_SIZE=0")
        return
    try:
        status = folder.lstat()
    except FileNotFoundError:
        yield ok("prompts", f"none saved yet; they go to {folder}")
        return
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != own_uid():
        text = f"{folder} is not a folder of yours, so computed prompts are neither saved nor read"
        yield problem("prompts", text, f"mv {folder} {folder}.old, or set HEARTH_CACHE_DIR")
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield problem("prompts", f"{folder} cannot be written to", f"chmod 700 {folder}")
    elif permissions(status) & 0o077:
        text = f"other users can look into {folder}"
        yield warning("prompts", text, f"chmod 700 {folder}")
    else:
        taken = 0
        for at, _, names in os.walk(folder):
            for name in names:
                with suppress(OSError):
                    taken += Path(at, name).lstat().st_size
        yield ok("prompts", f"{size(taken)} of computed prompts in {folder}")


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.absolute().parents) if each.is_dir())


def _file_system(folder: Path) -> tuple[str, str]:
    """Where it is mounted, and its kind."""
    resolved, best, kind = folder.resolve(), "", "unknown file system"
    for each in psutil.disk_partitions(all=True):
        if resolved.is_relative_to(each.mountpoint) and len(each.mountpoint) >= len(best):
            best, kind = each.mountpoint, each.fstype
    return best, kind
