"""Other people's tests at run time: the pytest suite of llama-server, out of the source archive of
the llama-cpp-python that constraints.txt pins. Nothing of it is kept in this repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    / "hearth"
    / "llama-server-suite"
)
KNOWN = CACHE / "models" / "known.json"
_SOURCE = "vendor/llama.cpp/"
_WANTED = (
    "tools/server/tests/",
    "models/templates/",
    "tools/mtmd/test-",
)


def pinned_version() -> str:
    """The version of llama-cpp-python whose llama.cpp hearth runs."""
    text = (REPOSITORY / "constraints.txt").read_text()
    found = re.search(r"^llama-cpp-python==(\S+)$", text, re.MULTILINE)
    assert found is not None
    return found[1]


def unpacked() -> Path:
    """The folder of llama.cpp's files that the suite needs, fetched once."""
    return source(CACHE / f"source-{pinned_version()}", _WANTED)


def source(folder: Path, wanted: tuple[str, ...]) -> Path:
    """folder, with the files of llama.cpp's whose paths begin with one of wanted, fetched once."""
    if (folder / "complete").exists():
        return folder
    archive = _archive(pinned_version())
    with tarfile.open(archive) as tar:
        for member in tar:
            path = member.name.partition(_SOURCE)[2]
            if member.isfile() and path.startswith(wanted) and ".." not in path:
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None
                target.write_bytes(content.read())
    (folder / "complete").touch()
    return folder


def tests_folder() -> Path:
    """Where the suite runs."""
    return unpacked() / "tools" / "server" / "tests"


def _archive(version: str) -> Path:
    name = f"llama_cpp_python-{version}.tar.gz"
    if not (CACHE / name).exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        wanted = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
        command = [sys.executable, "-m", "pip", "download", *wanted, "--dest", str(CACHE)]
        subprocess.run([*command, f"llama-cpp-python=={version}"], check=True)
    return CACHE / name
