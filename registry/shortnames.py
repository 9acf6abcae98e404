"""Short names: what a user types for a model of another host, by a table that he writes.

    # shortnames.toml
    small = "hf.co/someone/some-repository:Q4_K_M"
    "team:v2" = "registry.example.com/team/model:v2"

Owns the file's form and the lookup. hearth ships no entries. The file is read at each use, so
that an edit counts at once. Knows nothing of what is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.atomic import read_small
from registry.errors import InvalidDigest, InvalidName, InvalidShortNames, shown
from registry.hosts.references import parse
from registry.names import DEFAULT_TAG, Name

FILE_NAME = "shortnames.toml"
_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ShortNames:
    """The table at path; an empty one where there is no file."""

    path: Path

    def expand(self, text: str) -> str:
        """What a bare name stands for; text itself when the table has no such name. The case of
        a name says nothing. An entry without a tag also stands for the name with one, which then
        is the tag or quantization of a place that says none.

        Raises InvalidShortNames for a table with any fault.
        """
        if "/" in text or "@" in text:
            return text
        table = self._read()
        wanted = text.lower().removesuffix(f":{DEFAULT_TAG}")
        if wanted in table:
            return table[wanted]
        name, colon, tag = wanted.rpartition(":")
        place = table.get(name) if colon else None
        if place is None or "://" in place or "@" in place or ":" in place.rpartition("/")[2]:
            return text
        return f"{place}:{text[-len(tag) :]}"

    def _read(self) -> dict[str, str]:
        try:
            content = read_small(self.path, _MAX_BYTES)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise InvalidShortNames(f"cannot be read: {error.strerror}") from None
        if len(content) > _MAX_BYTES:
            raise InvalidShortNames(f"longer than {_MAX_BYTES} bytes")
        return _checked(_parsed(content))


def _parsed(content: bytes) -> Mapping[str, Any]:
    import tomllib  # 3 ms that a daemon without a table can do without

    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidShortNames(f"line {line} is not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidShortNames(str(error) or "nested too deeply") from None


def _checked(values: Mapping[str, Any]) -> dict[str, str]:
    """The table with folded names."""
    table: dict[str, str] = {}
    for name, place in values.items():
        key = _key(name)
        if isinstance(place, dict):
            raise InvalidShortNames(
                f"{shown(name)} is a table; a name with a dot must be quoted, as in "
                '"name.5" = "hf.co/user/repository"'
            )
        if key in table:
            raise InvalidShortNames(f"{shown(name)} occurs twice")
        table[key] = _place(name, place)
    return table


def _key(name: str) -> str:
    try:
        Name.parse(name)
    except InvalidName as error:
        raise InvalidShortNames(error.message) from None
    if "/" in name:
        raise InvalidShortNames(f"{shown(name)} is not a short name: it contains a '/'")
    return name.lower().removesuffix(f":{DEFAULT_TAG}")


def _place(name: str, place: Any) -> str:
    if not isinstance(place, str):
        raise InvalidShortNames(f"{shown(name)}: expected a string, not {shown(str(place))}")
    try:
        reference = parse(place)
    except (InvalidName, InvalidDigest) as error:
        raise InvalidShortNames(f"{shown(name)}: {error.message}") from None
    if reference.kind.is_registry and "://" not in place and place.count("/") < 2:
        raise InvalidShortNames(
            f"{shown(name)}: {shown(place)} does not name the source of the model; use "
            "hf.co/user/repository or host/namespace/model"
        )
    return place
