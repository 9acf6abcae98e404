"""What install.sh needs for an upgrade, run by the system's Python:

clone OLD NEW     an environment like OLD beside it, by hard links
switch NEW OLD    NEW takes the place of OLD in one step, and OLD that of NEW
changes OLD NEW   the entries of the changelog NEW that OLD does not have
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from pathlib import Path

SHOWN_ENTRIES = 12
_AT_FDCWD = -100
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS


def clone(old: Path, new: Path) -> None:
    """Copies an environment. Its files are shared: who changes one has to put another in its place,
    as pip does."""
    shutil.copytree(old, new, symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copy2(source, target)


def switch(new: Path, old: Path) -> None:
    """Exchanges two environments, whose scripts then name their places."""
    _rename_in_scripts(new, old)
    if not _exchange(new, old):
        aside = old.with_name(f"{old.name}.old")
        old.rename(aside)
        new.rename(old)
        aside.rename(new)
    (old / "hearth-install.txt").touch()  # daemons that started before are of the former version


def _rename_in_scripts(new: Path, old: Path) -> None:
    former, latter = (os.fsencode(f"{place}/bin/") for place in (new, old))
    for path in [*(new / "bin").iterdir(), new / "pyvenv.cfg"]:
        if path.is_symlink() or not path.is_file():
            continue
        text = path.read_bytes()
        if former not in text:
            continue
        changed = path.with_name(f".{path.name}.new")
        changed.write_bytes(text.replace(former, latter))
        shutil.copymode(path, changed)
        changed.replace(path)


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges two paths atomically; False where the system cannot."""
    library = ctypes.CDLL(None)
    paths = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            return library.renamex_np(*paths, _EXCHANGE) == 0
        return library.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _EXCHANGE) == 0
    except AttributeError:
        return False


def changes(old: Path, new: Path) -> None:
    """Prints the first line of each entry that is new, as many as one reads."""
    known = set(_entries(old.read_text()))
    found = [entry for entry in _entries(new.read_text()) if entry not in known]
    for entry in found[:SHOWN_ENTRIES]:
        first, _, rest = entry.partition("\n")
        print(f"  {first}{' ...' if rest else ''}")
    if len(found) > SHOWN_ENTRIES:
        print(f"  and {len(found) - SHOWN_ENTRIES} more: see {new}")


def _entries(text: str) -> list[str]:
    return [part.partition("\n\n")[0].strip() for part in f"\n{text}".split("\n- ")[1:]]


COMMANDS = {"clone": clone, "switch": switch, "changes": changes}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
