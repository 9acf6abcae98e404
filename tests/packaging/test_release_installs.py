"""The release of `make dist`, as others install it: get.sh on a machine that never had a compiler,
pipx and uv. `make try-release`; needs the package index, and root for the machine."""

from __future__ import annotations

import functools
import http.server
import os
import resource
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.packaging.conftest import REPOSITORY, run

pytestmark = pytest.mark.slow
BARE_ROOT = REPOSITORY / "build/bare-root"
PACKAGES = "python3,python3-venv,ca-certificates,curl"
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "cmake", "ninja", "make", "ld")
QUESTION = "What can you do?"
LIMIT_S = 60

# In namespaces of its own, so that what it mounts and starts ends with it
ENTER = """
set -e
mount -t proc proc "$ROOT/proc"
mount --bind "$DEPENDENCIES" "$ROOT/mnt"
exec chroot "$ROOT" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    HEARTH_RELEASE_URL="$HEARTH_RELEASE" HEARTH_HOST="$ADDRESS" \
    PIP_NO_INDEX=1 PIP_FIND_LINKS=/mnt sh -euc "$SCRIPT"
"""
INSTALL = """
started=$(date +%s)
curl -fsSL "$HEARTH_RELEASE_URL/get.sh" | sh -s -- --without-torch
echo "seconds $(($(date +%s) - started))"
"""
TALK = f"""
~/.local/bin/hearth run ember "{QUESTION}"
~/.local/bin/hearth doctor || :
~/.local/bin/hearth shutdown
"""


@pytest.fixture(scope="module")
def bare_root() -> Path:
    """The root folder of a Debian without a compiler, of the series that runs here, and without
    hearth. It is kept."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("a root folder of its own needs root, and debootstrap")
    if not (BARE_ROOT / "made").exists():
        shutil.rmtree(BARE_ROOT, ignore_errors=True)
        release = dict(
            line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if line
        )
        include = f"--include={PACKAGES}"
        run("debootstrap", "--variant=minbase", include, release["VERSION_CODENAME"], BARE_ROOT)
        (BARE_ROOT / "made").touch()
    for path in (BARE_ROOT / "root/.local", BARE_ROOT / "root/.cache"):
        shutil.rmtree(path, ignore_errors=True)
    found = [
        tool
        for tool in COMPILERS
        for folder in ("usr/bin", "bin", "usr/local/bin")
        if os.path.lexists(BARE_ROOT / folder / tool)
    ]
    assert not found
    return BARE_ROOT


@pytest.fixture(scope="module")
def dependencies(bare_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what hearth runs on: an index's files, without the index."""
    folder = tmp_path_factory.mktemp("dependencies")
    python = next((bare_root / "usr/bin").glob("python3.?*")).name.removeprefix("python")
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder)
    options = ("--only-binary", ":all:", "--python-version", python, "--require-hashes")
    run(*pip, *options, "-r", REPOSITORY / "requirements.txt")
    return folder


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serves the files of a folder on this machine. Gives the address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_machine_without_a_compiler_installs_within_a_minute_and_ember_answers(
    released: Path, bare_root: Path, dependencies: Path, unused_tcp_port: int
) -> None:
    """A minute of processor time: other work may share the cores."""
    environ = {
        "ROOT": str(bare_root),
        "DEPENDENCIES": str(dependencies),
        "ADDRESS": f"127.0.0.1:{unused_tcp_port}",
    }
    enter = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER)
    with served(released) as address:
        environ["HEARTH_RELEASE"] = address
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began_s = time.monotonic()
        said = run(*enter, env=environ | {"SCRIPT": INSTALL})
        wall_s = time.monotonic() - began_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{said}\n{used_s:.1f} s of processor time, {wall_s:.1f} s of wall time")
    assert "kept: the wheel of HEARTH_WHEEL_INDEX" in said
    assert "of the wheel" in said, "hearth's kernels"
    assert used_s < LIMIT_S
    said = run(*enter, env=environ | {"HEARTH_RELEASE": "", "SCRIPT": TALK})
    print(said)
    assert "hearth" in said.splitlines()[0]


def _talk(command: Path, home: Path, port: int) -> None:
    environ = {"HEARTH_HOME": str(home), "HEARTH_HOST": f"127.0.0.1:{port}"}
    try:
        assert run(command, "run", "ember", QUESTION, env=environ).strip()
    finally:
        run(command, "shutdown", env=environ)


def _wheel(released: Path) -> str:
    (path,) = released.glob("hearth-*-manylinux_*.whl")
    return f"{path}[vision,websockets,mcp]"


def test_pipx_installs_the_wheel(released: Path, tmp_path: Path, unused_tcp_port: int) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "pipx")
    run(tmp_path / "pipx/bin/pip", "install", "--quiet", "pipx==1.18.4")
    pip = f"--find-links {released} --only-binary llama-cpp-python"
    environ = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    pipx = tmp_path / "pipx/bin/pipx"
    run(pipx, "install", "--pip-args", pip, _wheel(released), env=environ)
    _talk(tmp_path / "bin/hearth", tmp_path / "hearth", unused_tcp_port)


def test_uv_installs_the_wheel(released: Path, tmp_path: Path, unused_tcp_port: int) -> None:
    environ = {
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_PYTHON": sys.executable,
    }
    uv = REPOSITORY / ".venv-dist/bin/uv"
    options = ("--find-links", released, "--no-build-package", "llama-cpp-python")
    run(uv, "tool", "install", *options, _wheel(released), env=environ)
    _talk(tmp_path / "bin/hearth", tmp_path / "hearth", unused_tcp_port)
