"""The files of the container. tests/packaging/container_root.py builds and runs it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.packaging.conftest import REPOSITORY
from tests.packaging.test_wheel import PACKAGES

READ_BY_INSTALL_SH = ("CHANGELOG.md", "LICENSE", "README.md", "constraints.txt", "docs/man",
                      "install.sh", "pyproject.toml", "release", "requirements*.txt")  # fmt: skip


def test_the_build_is_sent_what_is_installed() -> None:
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    sent = {line[1:] for line in lines if line.startswith("!")}
    assert sent == {*PACKAGES, *READ_BY_INSTALL_SH, "dist/*.whl"}


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="needs hadolint")
def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    done = subprocess.run(
        ["hadolint", "Dockerfile"], cwd=REPOSITORY, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")
