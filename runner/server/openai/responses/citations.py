"""Where a text names a passage that the model was given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

_MARK: Final = re.compile(r"\[(\d{1,4})\]")


@dataclass(frozen=True, slots=True)
class Source:
    """A passage that the model was given: of which file."""

    file_id: str
    filename: str


def citations(text: str, sources: Sequence[Source]) -> list[dict[str, Any]]:
    """The places where text names a source by its number in brackets, from 1."""
    return [
        {
            "type": "file_citation",
            "index": found.start(),
            "file_id": sources[int(found[1]) - 1].file_id,
            "filename": sources[int(found[1]) - 1].filename,
        }
        for found in _MARK.finditer(text)
        if 1 <= int(found[1]) <= len(sources)
    ]
