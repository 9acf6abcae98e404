"""Every kernel compiles to machine code for an H200, and fits its shared memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kernels

ROOT = Path(kernels.__file__).parent
SHARED_BYTES = 227 * 1024  # of one program on compute capability 9.0


def compiled(cache: Path, *arguments: str) -> dict[str, int]:
    """The shared memory of each kernel, compiled in a process without the interpreter."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compile_all", *arguments],
        cwd=ROOT.parent,
        env=environment | {"TRITON_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    sizes = json.loads(done.stdout)
    assert isinstance(sizes, dict)
    return sizes


def defined() -> set[str]:
    """The names of all kernels in the sources."""
    sources = [path.read_text() for path in ROOT.rglob("*.py")]
    return {name for text in sources for name in re.findall(r"^def (_\w+_kernel)\(", text, re.M)}


@pytest.mark.slow
def test_every_kernel_compiles_for_an_h200(tmp_path: Path) -> None:
    sizes = compiled(tmp_path, "once")
    assert set(sizes) == defined()
    assert max(sizes.values()) <= SHARED_BYTES


@pytest.mark.slow
def test_every_variant_compiles_for_an_h200(tmp_path: Path) -> None:
    assert max(compiled(tmp_path).values()) <= SHARED_BYTES
