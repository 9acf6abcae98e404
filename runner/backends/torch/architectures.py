"""Which decoders there are: the files of models/, named as config.json's model_type."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

from registry.errors import shown
from runner.errors import ModelLoadFailed

_FOLDER = Path(__file__).with_name("models")
# Spellings of model_type that one file covers
_SAME = {"gemma3": "gemma3_text"}


@cache
def known() -> tuple[str, ...]:
    """The model_types that can be loaded."""
    names = (path.stem for path in _FOLDER.glob("*.py"))
    return tuple(sorted(name for name in names if not name.startswith("_")))


def model_class(model_type: str) -> Any:
    """build(config, weights) of an architecture. Raises ModelLoadFailed with what is known."""
    name = _SAME.get(model_type, model_type).replace("-", "_")
    if name not in known():
        raise ModelLoadFailed(
            f"the torch backend does not support the architecture {shown(model_type)}; it knows"
            f" {', '.join(known())}"
        )
    return importlib.import_module(f"runner.backends.torch.models.{name}").build
