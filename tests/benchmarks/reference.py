"""The environment of llama_cpp.server: a venv of its own, made once in the cache folder.

Its dependencies (FastAPI and others) are none of hearth's. The llama-cpp-python version is the
one that hearth runs on; pip takes the wheel that it built before, where it did.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path


def server_python(folder: Path) -> Path:
    """The interpreter with llama-cpp-python[server] under folder, installed when missing."""
    wanted = version("llama-cpp-python")
    environment = folder / f"llama-cpp-server-{wanted}"
    python = environment / "bin" / "python"
    if _imports(python):
        return python
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=300)
    install = [str(python), "-m", "pip", "install", "-q", f"llama-cpp-python[server]=={wanted}"]
    subprocess.run(install, check=True, timeout=3600)
    return python


def _imports(python: Path) -> bool:
    if not python.exists():
        return False
    check = [str(python), "-c", "import llama_cpp.server.app"]
    return subprocess.run(check, capture_output=True, check=False, timeout=120).returncode == 0
