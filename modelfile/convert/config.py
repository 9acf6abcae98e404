"""The config.json of a checkpoint: bounded reading and checked values.

Knows the file, not what an architecture makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from modelfile.convert.files import brief, read_object
from modelfile.errors import ConvertError

_MAX_NUMBER: Final = 1e30  # within float32, where these numbers go
MAX_INTEGER: Final = 1 << 24  # wider than any layer and longer than any vocabulary


@dataclass(frozen=True, slots=True)
class Config:
    """The values of config.json. file: the name in messages."""

    values: Mapping[str, Any]
    file: str = "config.json"

    @property
    def model_type(self) -> str:
        """The architecture as Hugging Face names it. Raises ConvertError."""
        return self.text("model_type")

    def text(self, key: str) -> str:
        """A string. Raises ConvertError when it is missing or something else."""
        value = self.values.get(key)
        if not isinstance(value, str) or not value:
            self.refuse(key, f"{brief(value)}, expected a string")
        return str(value)

    def integer(self, key: str, default: int | None = None, maximum: int = MAX_INTEGER) -> int:
        """A whole number from 1 to maximum; default where it is missing or null. Raises
        ConvertError."""
        value = self.values.get(key)
        if value is None:
            value = default
        if type(value) is not int or not 0 < value <= maximum:
            self.refuse(key, f"{brief(value)}, expected a whole number from 1 to {maximum}")
        return int(value)

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number; default where it is missing or null. Raises ConvertError."""
        value = self.values.get(key)
        if value is None:
            value = default
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.refuse(key, f"{brief(value)}, expected a number")
        if not -_MAX_NUMBER < value < _MAX_NUMBER:  # false for NaN too
            self.refuse(key, f"{brief(value)} is out of range")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false; default where it is missing or null. Raises ConvertError."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(key, f"{brief(value)}, expected true or false")
        return bool(value)

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """A list of count finite numbers. Raises ConvertError."""
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) != count:
            self.refuse(key, f"expected a list of {count} numbers")
        return tuple(Config({key: item}, self.file).number(key) for item in value)

    def group(self, key: str) -> Config:
        """The object below a key; empty where it is missing or null. Raises ConvertError."""
        value = self.values.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            self.refuse(key, "expected an object")
        return Config(value, f"{self.file}: {key}")

    def one_of(self, key: str, default: str, *known: str) -> str:
        """A text that is one of known. Raises ConvertError."""
        value = self.values.get(key)
        value = default if value is None else value
        if value not in known:
            self.refuse(key, f"{brief(value)} is not supported, only {' or '.join(known)}")
        return str(value)

    def refuse(self, key: str, message: str) -> NoReturn:
        """Raises ConvertError about this key."""
        raise ConvertError(f"{self.file}: {key}: {message}")


def read_config(files: Mapping[str, Path], name: str = "config.json") -> Config:
    """The config of a checkpoint. Raises ConvertError, OSError."""
    return Config(read_json(files, name), name)


def read_json(files: Mapping[str, Path], name: str) -> dict[str, Any]:
    """The JSON object in a file of the checkpoint. Raises ConvertError, OSError."""
    if name not in files:
        raise ConvertError(f"{name} is missing beside the weights")
    return dict(read_object(files, name))
