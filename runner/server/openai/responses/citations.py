"""What a response tells of files that were searched: the calls, and where it names a source."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

SEARCH_ITEM: Final = "file_search_call"
MAX_QUERIES: Final = 4
_MARK: Final = re.compile(r"\[(\d{1,4})\]")


@dataclass(frozen=True, slots=True)
class Source:
    """A passage that the model was given: of which file."""

    file_id: str
    filename: str


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A search that the model asks for. item: of the response, at index."""

    item: dict[str, Any]
    index: int
    id: str
    arguments: str

    @property
    def queries(self) -> list[str]:
        """What to look for; none when the arguments say nothing."""
        try:
            given = json.loads(self.arguments)["queries"]
        except (ValueError, LookupError, TypeError, RecursionError):
            return []
        given = [given] if isinstance(given, str) else given
        texts = given if isinstance(given, list) else []
        return [text for text in texts if isinstance(text, str) and text.strip()][:MAX_QUERIES]


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
