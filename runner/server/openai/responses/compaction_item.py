"""The item that stands for a part of a conversation: a summary, and what is kept as it was.

Its content is opaque to clients and comes back from them. It is not encrypted: it holds nothing
that its client has not seen, and says nothing that its client could not say.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Final

from runner.errors import InvalidRequest
from runner.server.ids import new_id

TYPE: Final = "compaction"
_MARK: Final = "hearth-1."
_SUMMARY: Final = "Summary of the conversation so far:\n\n"

Items = list[dict[str, Any]]


def compaction_item(summary: str, kept: Items | None = None) -> dict[str, Any]:
    """kept: what goes on unchanged, where the item stands for all that is before it; None: it
    stands for no more than its summary."""
    content = json.dumps({"summary": summary, "kept": kept}).encode()
    return {
        "id": new_id("cmp").replace("-", "_"),
        "type": TYPE,
        "encrypted_content": _MARK + base64.b64encode(content).decode(),
    }


def without_compacted(items: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """The items that a model shall read, each with its place. Raises InvalidRequest."""
    read: list[tuple[str, dict[str, Any]]] = []
    for index, item in enumerate(items):
        where = f"input.{index}"
        if item.get("type") != TYPE:
            read.append((where, item))
            continue
        summary, kept = _content(item, where)
        said = {"type": "message", "role": "user", "content": _SUMMARY + summary}
        if kept is not None:
            read.clear()
        read += [(where, each) for each in (said, *(kept or ()))]
    return read


def _content(item: dict[str, Any], where: str) -> tuple[str, Items | None]:
    text = item.get("encrypted_content")
    try:
        if not (isinstance(text, str) and text.startswith(_MARK)):
            raise ValueError
        content = json.loads(base64.b64decode(text.removeprefix(_MARK), validate=True))
        summary, kept = content["summary"], content["kept"]
        if not isinstance(summary, str) or not _is_items(kept):
            raise ValueError
    except (ValueError, LookupError, TypeError, RecursionError):
        raise InvalidRequest(
            f"{where}.encrypted_content is not what a compaction of this daemon gave", param=where
        ) from None
    return summary, kept


def _is_items(kept: Any) -> bool:
    if kept is None:
        return True
    return isinstance(kept, list) and all(
        isinstance(item, dict) and item.get("type") != TYPE for item in kept
    )
