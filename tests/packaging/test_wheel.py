"""What a wheel of hearth holds: everything that runs, ember included, not how it was trained."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.packaging.conftest import REPOSITORY

PACKAGES = ("runner", "modelfile", "registry", "kernels", "cli")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from the working tree without any network."""
    pytest.importorskip("hatchling")
    wheel = _build(tmp_path_factory.mktemp("wheel"), os.environ)
    assert str(wheel.filename).endswith("-py3-none-any.whl")
    return wheel


def _build(folder: Path, environ: Mapping[str, str]) -> zipfile.ZipFile:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=REPOSITORY,
        env=environ,
        check=True,
        capture_output=True,
        timeout=110,
    )
    (path,) = folder.glob("hearth-*.whl")
    return zipfile.ZipFile(path)


def test_wheel_holds_every_module_and_its_data(wheel: zipfile.ZipFile) -> None:
    expected = {
        str(path.relative_to(REPOSITORY))
        for package in PACKAGES
        for path in (REPOSITORY / package).rglob("*")
        if path.is_file() and not _left_out(path.relative_to(REPOSITORY))
    }
    held = {name for name in wheel.namelist() if not re.match(r"[^/]*\.(dist-info|data)/", name)}
    assert held == expected


def _left_out(path: Path) -> bool:
    """The page is there as it is served, without what it is built from."""
    if path.is_relative_to("runner/server/ui"):
        folder = path.relative_to("runner/server/ui").parts[0]
        return folder != "built" and (path.suffix not in (".py", ".html") or folder == "src")
    return "__pycache__" in path.parts or path.suffix == ".pyc"


def test_wheel_holds_ember(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert {"registry/builtin/ember/ember.gguf", "registry/builtin/ember/Modelfile"} <= names
    assert wheel.read("registry/builtin/ember/ember.gguf")[:4] == b"GGUF"
    assert wheel.getinfo("registry/builtin/ember/ember.gguf").file_size <= 12_000_000


def test_wheel_holds_the_manual_pages(wheel: zipfile.ZipFile) -> None:
    names = {name.partition(".data/data/")[2] for name in wheel.namelist()}
    assert {"share/man/man1/hearth.1", "share/man/man1/hearth-run.1"} <= names


def test_wheel_leaves_the_tests_out(wheel: zipfile.ZipFile) -> None:
    assert not [name for name in wheel.namelist() if name.startswith("tests/")]


def test_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "hearth = cli.main:main" in wheel.read(entry_points).decode()


def test_wheel_with_kernels_is_one_for_this_platform(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/llamacpp-avx2.so").write_bytes(b"kernels")
    environ = os.environ | {"HEARTH_WHEEL_KERNELS": str(tmp_path / "kernels")}
    wheel = _build(tmp_path, environ)
    tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.filename is not None
    assert wheel.filename.endswith(f"-py3-none-{tag}.whl")
    assert wheel.read("kernels/native/lib/llamacpp-avx2.so") == b"kernels"
    (described,) = (name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL"))
    assert "Root-Is-Purelib: false" in wheel.read(described).decode()
