"""The state of an interrupted `hearth eval`, so that the same command can resume it.

A file for each model, text and context, in the user's state folder. State that is damaged or from
another text is reported and ignored; the daemon ignores state from another model.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cli.private_files import private_files
from cli.terminal import status
from runner import __version__

_FIELDS = {"digest": str, "chunks": int, "total": float, "squares": float}
_MAX_BYTES = 4096


class EvalState:
    """The state of measuring a model on a text. folder: where the files lie; path and content: of
    the text."""

    def __init__(
        self, folder: Path, model: str, path: Path, content: str, context: int | None
    ) -> None:
        key = json.dumps([model, str(path.resolve()), context])
        self.file = folder / f"{_digest(key)[:32]}.json"
        self._origin = {"text": _digest(content), "hearth": __version__}

    def load(self) -> dict[str, Any] | None:
        """What was found so far; None: nothing. Tells what is left out."""
        try:
            with self.file.open("rb") as file:
                saved = json.loads(file.read(_MAX_BYTES))
            if saved["origin"] != self._origin:
                status("the saved state is from another text or version of hearth: starting again")
                return None
            state = {name: kind(saved["state"][name]) for name, kind in _FIELDS.items()}
            if state["chunks"] < 0 or not 0 <= state["squares"] < math.inf > abs(state["total"]):
                raise ValueError("no sums of losses")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, LookupError, RecursionError):
            status(f"the saved state {self.file} is damaged: starting again")
            return None
        return state

    def save(self, state: Mapping[str, Any]) -> None:
        """Keep it, where that can be written: nothing else depends on it."""
        kept = {"origin": self._origin, "state": {name: state[name] for name in _FIELDS}}
        part = self.file.with_suffix(f".{os.getpid()}.part")
        with suppress(OSError):
            try:
                with private_files():
                    self.file.parent.mkdir(parents=True, exist_ok=True)
                    part.write_text(json.dumps(kept), "utf-8")
                part.replace(self.file)
            finally:
                part.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the state, which is no longer needed."""
        with suppress(OSError):
            self.file.unlink(missing_ok=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
