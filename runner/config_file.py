"""config.toml: the settings of a user in a file, each under its variable's name without HEARTH_ and
in small letters.

Knows how settings are written in TOML, not which there are.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runner.errors import Conflict
from runner.file_system import permissions
from runner.owned_file import read_owned
from runner.setting_values import (
    parse_addresses,
    parse_auto_flag,
    parse_count,
    parse_duration,
    parse_flag,
    parse_host_names,
    parse_hosts,
    parse_optional_count,
    parse_origins,
    parse_path,
    parse_size,
)

FILE_NAME = "config.toml"
_MAX_BYTES = 1 << 20
_LINE = re.compile(r"""[ \t]*+(?:\[{1,2}[ \t]*+)?["']?([^\s"'.=\[\]#]++)["']?[ \t]*+[.=\]]""")
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string",
          list: "a list of strings", dict: "a table"}  # fmt: skip
# What a setting may be besides a text, by how its text is read.
_TYPES: Mapping[Callable[[str], Any], tuple[type, ...]] = {
    parse_flag: (bool, int),
    parse_auto_flag: (bool, int),
    parse_count: (int,),
    parse_optional_count: (int,),
    parse_size: (int,),
    parse_duration: (int, float),
    parse_addresses: (list,),
    parse_hosts: (list,),
    parse_host_names: (list,),
    parse_origins: (list,),
}

Parsers = Mapping[str, Callable[[str], Any]]


class FileError(Exception):
    """The file is not sound. The message names it, the line where possible, and what to do, but
    nothing that a setting is set to."""


def read_config(
    path: Path, parsers: Parsers, secrets: frozenset[str]
) -> dict[str, tuple[int, str]]:
    """The line and the text, as one would write it into the environment, of each setting in the
    file; none where there is no file. A process reads a file once. parsers: those of the settings
    that there are. secrets: those that other users may not even read.

    Raises FileError for a file that is not TOML or not this user's alone, for a name that is no
    setting and for a value of another type."""
    found = {}
    for name, (line, value) in _read(path, secrets).items():
        if name not in parsers:
            raise FileError(f"{path}, line {line}: {_unknown(name, parsers)}")
        try:
            found[name] = (line, _text(value, parsers[name], path.parent))
        except ValueError as error:
            raise FileError(f"{path}, line {line}: {name} {error}") from None
    return found


@functools.cache
def _read(path: Path, secrets: frozenset[str]) -> dict[str, tuple[int, object]]:
    try:
        data = None if path == Path(os.devnull) else read_owned(path, _MAX_BYTES)
        if data is None:
            return {}
        mode = permissions(path.stat())
    except Conflict as error:
        raise FileError(error.message) from None
    import tomllib  # no start of a command without a file pays for it

    try:
        text = data.decode("utf-8-sig")
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise FileError(f"{path}, line {line}: this is not UTF-8; save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        advice = """write each setting as in keep_alive = "10m\""""
        raise FileError(f"{path} is not TOML: {error}; {advice}") from None
    if mode & 0o044 and secrets & table.keys():
        named = ", ".join(secrets & table.keys())
        advice = f"other users may read it; run `chmod 600 {path}`"
        raise FileError(f"{path} holds {named}, and {advice}")

    lines: dict[str, int] = {}
    for number, line_text in enumerate(text.splitlines(), 1):
        if found := _LINE.match(line_text):
            lines.setdefault(found[1], number)
    return {name: (lines.get(name, 1), value) for name, value in table.items()}


def _unknown(name: str, parsers: Parsers) -> str:
    import difflib

    plain = name.lower().removeprefix("hearth_")
    near = difflib.get_close_matches(plain, parsers, 1)
    advice = f"the nearest is {near[0]}" if near else "`hearth env --explain` shows all"
    return f"there is no setting {name[:100]!r}; {advice}"


def _text(value: object, parse: Callable[[str], Any], folder: Path) -> str:
    """Raises ValueError, without the value."""
    kinds = (str, *_TYPES.get(parse, ()))
    texts = value if list in kinds and isinstance(value, list) else [value]
    kinds = (str,) if texts is value else kinds
    for each in texts:
        if type(each) not in kinds:
            found = _NAMES.get(type(each), "a date or a time")
            raise ValueError(f"has {found}; write {' or '.join(_NAMES[kind] for kind in kinds)}")
    text = ",".join(str(int(each) if isinstance(each, bool) else each) for each in texts)
    if "\0" in text:
        raise ValueError("has a NUL character; remove it")
    if parse is parse_path and text.strip() and not text.startswith("~"):
        return str(folder / text)
    return text
