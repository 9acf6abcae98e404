"""Every product module can be imported where POSIX's modules are missing."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.long
def test_no_module_needs_what_windows_lacks_to_be_imported() -> None:
    words = [sys.executable, "-P", "-m", "tests.unit.imported_as_windows"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
