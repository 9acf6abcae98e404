"""Reading the text files that verbs are given."""

from __future__ import annotations

import sys
from pathlib import Path

from cli.errors import USAGE, CliError


def read_text(path: Path, max_bytes: int) -> str:
    """The text of a file; - reads stdin. Raises CliError for what cannot be read, has more than
    max_bytes or is not UTF-8."""
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(max_bytes + 1)
        else:
            with path.open("rb") as file:
                data = file.read(max_bytes + 1)
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}", USAGE) from None
    if len(data) > max_bytes:
        raise CliError(f"{path} has more than {max_bytes} bytes", USAGE)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CliError(
            f"{path} is not UTF-8: invalid byte at position {error.start}", USAGE
        ) from None
