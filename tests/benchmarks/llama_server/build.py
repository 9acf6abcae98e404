"""llama-server of the sources of the installed llama-cpp-python, and with its libraries: what it
computes with is then the build that hearth has."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
from pathlib import Path

import platformdirs

from tests.conformance.llama_server.suite import pinned_version, source

_SOURCES = ("cmake/", "common/", "include/", "ggml/include/", "scripts/", "src/", "tools/mtmd/",
            "tools/server/", "tools/ui/", "vendor/")  # fmt: skip
_CACHE = Path(platformdirs.user_cache_dir("hearth")) / "llama-server"


def program() -> Path:
    """Where the program for the installed libraries is, or would be."""
    digest = hashlib.sha256(pinned_version().encode())
    for library in _libraries():
        digest.update(library.read_bytes())
    return _CACHE / digest.hexdigest()[:16] / "llama-server"


def build(jobs: int) -> Path:
    """The program, compiled where it is missing: some 7 minutes of one core. Needs CMake and a C++
    compiler. Raises CalledProcessError."""
    made = program()
    if made.exists():
        return made
    libraries = made.parent / "lib"
    libraries.mkdir(parents=True, exist_ok=True)
    for library in _libraries():
        shutil.copy(library, libraries)
    sources = source(_CACHE / f"source-{pinned_version()}", _SOURCES)
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    places = [f"-DLLAMA={sources}", f"-DLIBRARIES={libraries}"]
    configure: list[str | Path] = [
        "cmake",
        *generator,
        "-S",
        Path(__file__).parent,
        "-B",
        made.parent,
        *places,
    ]
    subprocess.run(configure, check=True)
    command: list[str | Path] = [
        "cmake",
        "--build",
        made.parent,
        "--parallel",
        str(jobs),
        "--target",
        made.name,
    ]
    subprocess.run(command, check=True)
    return made


def _libraries() -> list[Path]:
    """Those of the installed llama-cpp-python, under the names by which they ask for each other."""
    spec = importlib.util.find_spec("llama_cpp")
    assert spec is not None
    assert spec.origin is not None
    return sorted((Path(spec.origin).parent / "lib").glob("*.so.0"))
