"""Loads the kernels for the Triton interpreter, which is chosen when a kernel is defined.

The variable is taken back afterwards, so that kernels.ops takes PyTorch in the other tests of this
process. How near a kernel comes to its meaning in naive.py is written down in tolerances.py.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import pytest

import kernels


def load_interpreted() -> None:
    """Import every module of kernels that defines a kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        # Imported at the first launch otherwise, where it wants the variable too.
        importlib.import_module("triton.experimental.gluon")
        root = Path(kernels.__file__).parent
        for path in sorted(root.rglob("*.py")):
            if "import triton\n" in path.read_text():
                name = path.relative_to(root.parent).with_suffix("")
                importlib.import_module(".".join(name.parts))


if importlib.util.find_spec("torch") and importlib.util.find_spec("triton"):
    load_interpreted()
else:
    collect_ignore_glob = ["test_*.py"]
