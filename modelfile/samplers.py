"""The values of samplers: every form that clients of llama.cpp write, and the one that is kept.

That form is a tuple of names in the order in which the samplers act. Knows no logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SAMPLERS: Final = (
    *("penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc"),
    "temperature",
)
"""All there are, in the order in which they act where nothing is said."""

_ALIASES: Final[Mapping[str, str]] = {
    "typ_p": "typical_p",
    "typical": "typical_p",
    "typ": "typical_p",
    "nucleus": "top_p",
    "temp": "temperature",
}
_MAX_LENGTH: Final = 2 * len(SAMPLERS)  # of a list, and of a name or letters
_LETTERS: Final[Mapping[str, str]] = dict(zip("edskypmxt", SAMPLERS, strict=True))


def canonical(value: Any) -> tuple[str, ...] | None:
    """The kept form of value: a list of names, one name, or names by their letters ("kpt"). A name
    counts where it stands first. None: it is no such value."""
    given = value
    if not isinstance(value, str | list | tuple) or len(value) > _MAX_LENGTH:
        return None
    if isinstance(value, str):
        by_name = _name(value)
        given = [_LETTERS.get(letter) for letter in value] if by_name is None else [by_name]
    names = [_name(name) for name in given]
    known = [name for name in names if name is not None]
    return tuple(dict.fromkeys(known)) if len(known) == len(names) else None


def _name(value: Any) -> str | None:
    if not isinstance(value, str) or len(value) > _MAX_LENGTH:
        return None
    name = value.replace("-", "_")
    name = _ALIASES.get(name, name)
    return name if name in SAMPLERS else None
