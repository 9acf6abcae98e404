"""Whether torch is there. Imports nothing of it."""

from __future__ import annotations

from importlib.util import find_spec

from runner.errors import ModelLoadFailed


def require_torch() -> None:
    """Raises ModelLoadFailed when torch is not installed."""
    if find_spec("torch") is None:
        raise ModelLoadFailed(
            "the torch backend needs PyTorch, which is not installed; install hearth with"
            " ./install.sh --with-torch, or leave out PARAMETER backend torch"
        )
