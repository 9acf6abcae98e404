"""The user's files other than models: whether they are intact, who owns them, which process holds
them."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from cli.doctor.finding import Finding, ok, problem, warning
from cli.private_files import read_regular
from runner.file_system import own_uid, permissions
from runner.settings import Settings


def _json(content: bytes) -> Any:
    return json.loads(content)


def _toml(content: bytes) -> Any:
    return tomllib.loads(content.decode())


def _sqlite(content: bytes) -> Any:
    if content and not content.startswith(b"SQLite format 3\0"):
        raise ValueError("no database")
    return {}


# The folder of settings, the file in it, how it is read, what it holds, whether that is secret
_FILES: tuple[tuple[str, str, Callable[[bytes], Any], type, bool], ...] = (
    ("data_dir", "keys.json", _json, list, True),
    ("data_dir", "auth.json", _json, dict, True),
    ("data_dir", "shortnames.toml", _toml, dict, False),
    ("data_dir", "responses.sqlite3", _sqlite, dict, True),
    ("data_dir", "vector_stores.sqlite3", _sqlite, dict, True),
    ("state_dir", "daemon.json", _json, dict, True),
    ("state_dir", "crashes.json", _json, dict, False),
    ("config_dir", "mcp.json", _json, dict, True),
    ("config_dir", "config.toml", _toml, dict, False),
)


def check_folders(settings: Settings) -> Iterator[Finding]:
    """The folders of hearth: this user's, writable, and closed to others."""
    folders = {settings.data_dir: 0o022, settings.state_dir: 0o077, settings.config_dir: 0o022}
    wrong = 0
    for folder, closed in folders.items():
        for found in _folder(folder, closed):
            wrong += 1
            yield found
    if not wrong:
        names = ", ".join(str(folder) for folder in folders if folder.exists())
        yield ok("folders", names or f"none yet; {settings.data_dir} is made by the first command")
    yield from _umask()


def _folder(folder: Path, closed: int) -> Iterator[Finding]:
    try:
        status = folder.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        yield problem("folders", f"{folder}: {error.strerror}", f"ls -ld {folder}")
        return
    if not stat.S_ISDIR(status.st_mode):
        yield problem("folders", f"{folder} is not a folder", f"mv {folder} {folder}.old")
    elif status.st_uid != own_uid() != 0:
        mend = f"sudo chown -R {own_uid()} {folder}, or set HEARTH_HOME to a folder of your own"
        yield problem("folders", f"{folder} belongs to user {status.st_uid}", mend)
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield problem("folders", f"{folder} cannot be written to", f"chmod u+rwx {folder}")
    elif permissions(status) & closed and not status.st_mode & stat.S_ISVTX:
        may = "write to" if closed == 0o022 else "look into"
        text = f"{folder} has the mode {permissions(status):04o}: other users may {may} it"
        yield warning("folders", text, f"chmod go-{'w' if closed == 0o022 else 'rwx'} {folder}")


def _umask() -> Iterator[Finding]:
    with suppress(OSError, StopIteration, ValueError):  # Linux tells it without changing it
        lines = Path("/proc/self/status").read_text().splitlines()
        mask = int(next(line.split()[1] for line in lines if line.startswith("Umask:")), 8)
        if not mask & 0o002:
            text = f"the umask {mask:04o} lets others write to the files that you make"
            yield warning("folders", text, "umask 022")


def check_files(settings: Settings) -> Iterator[Finding]:
    """The small files: whole, this user's, secrets closed to others."""
    wrong = 0
    for folder, name, read, kind, is_secret in _FILES:
        for found in _file(getattr(settings, folder) / name, read, kind, is_secret):
            wrong += 1
            yield found
    if not wrong:
        yield ok("files", f"all {len(_FILES)} small files are intact or absent")


def _file(
    path: Path, read: Callable[[bytes], Any], kind: type, is_secret: bool
) -> Iterator[Finding]:
    aside = f"mv {path} {path}.damaged"
    try:
        status = path.stat()
        content = read(read_regular(path))
        if not isinstance(content, kind):
            raise ValueError("another kind of value")
    except FileNotFoundError:
        if path.is_symlink():
            yield problem("files", f"{path} leads nowhere", aside)
    except OSError as error:
        yield problem("files", f"{path} cannot be read: {error.strerror}", f"ls -l {path}")
    except (ValueError, RecursionError):
        yield problem("files", f"{path} is damaged", f"{aside}, and restore it from a copy if any")
    else:
        if is_secret and permissions(status) & 0o077:
            text = f"{path} has the mode {permissions(status):04o} and holds secrets"
            yield warning("files", text, f"chmod 600 {path}")


def check_locks(settings: Settings) -> Iterator[Finding]:
    """Which process holds the store, and what a killed daemon has left behind. The locks are the
    kernel's and end with their process, so a leftover file blocks nothing."""
    lock, left = settings.models_dir / ".hearth.lock", []
    owner = _lock_owner(lock)
    if owner is None and lock.exists():
        left.append(f"{lock} of a daemon that has ended")
    told = _told(settings.state_dir / "daemon.json")
    pid = told.get("pid")
    if isinstance(pid, int) and pid > 0 and not psutil.pid_exists(pid):
        left.append(f"daemon.json of process {pid}, which has ended")
    if owner is not None and not _listens(owner):
        text = f"process {owner} holds the store {settings.models_dir} but listens nowhere"
        yield problem("locks", text, f"kill {owner}")
    elif owner is not None:
        yield ok("locks", f"process {owner} holds the store")
    else:
        harmless = f"; harmless: {', '.join(left)}" if left else ""
        yield ok("locks", f"no process holds the store{harmless}")


def _lock_owner(path: Path) -> int | None:
    """The process that holds the file's lock, by what the kernel lists; nothing is taken: a
    daemon that starts meanwhile would be refused."""
    with suppress(OSError, ValueError, IndexError):
        inode = str(path.stat().st_ino)
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode:
                return int(words[4])
    return None


def _listens(pid: int) -> bool:
    """Whether a process listens; also where that cannot be told."""
    try:
        sockets = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return True
    return any(each.status == psutil.CONN_LISTEN for each in sockets)


def _told(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(read_regular(path))
        return found if isinstance(found, dict) else {}
    return {}
