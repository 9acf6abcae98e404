"""The steps of a normalizer or a pre_tokenizer of a tokenizer.json.

Knows no kinds of steps but the sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from modelfile.convert.files import child, fault, items

_MAX_STEPS: Final = 16
_MAX_DEPTH: Final = 4
_PARTS: Final = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}


def steps_of(tokenizer: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The steps in their order, sequences resolved; none where the key is missing or null.
    key: "normalizer" or "pre_tokenizer". Raises ConvertError."""
    value = child(tokenizer, key)
    return _flat(value, key, 0) if value else []


def _flat(value: Any, key: str, depth: int) -> list[Mapping[str, Any]]:
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        raise fault(key, f"expected objects, at most {_MAX_DEPTH} deep")
    if value.get("type") != "Sequence":
        return [value]
    parts = items(value, _PARTS[key])
    if len(parts) > _MAX_STEPS:
        raise fault(key, f"{len(parts)} steps, more than {_MAX_STEPS}")
    return [step for part in parts for step in _flat(part, key, depth + 1)]
