"""Model names: Ollama's grammar, [scheme://][host/][namespace/]model[:tag].

Owns parsing, printing, comparison and near names. Knows nothing of what is installed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from registry.errors import InvalidName

NamePart = Literal["host", "namespace", "model", "tag"]

DEFAULT_HOST = "registry.ollama.ai"
DEFAULT_NAMESPACE = "library"
DEFAULT_TAG = "latest"

_MAX_CHARACTERS = {"host": 350, "namespace": 80, "model": 80, "tag": 80}
_EXTRA = {"host": ".:", "namespace": "", "model": ".", "tag": "."}
_FORMS = {
    part: re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_{extra}-]*", re.ASCII)
    for part, extra in _EXTRA.items()
}


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """A full model name. Case is kept; two names that differ in case only are one model, so
    compare folded."""

    host: str
    namespace: str
    model: str
    tag: str

    @classmethod
    def parse(cls, text: str) -> Name:
        """The name in text, missing parts filled with their defaults. A scheme is dropped.

        Raises InvalidName.
        """
        rest, tag = _cut_tag(text)
        rest, separator, model = rest.rpartition("/")
        parts = {"model": model, "tag": tag if tag is not None else DEFAULT_TAG}
        parts["host"], parts["namespace"] = DEFAULT_HOST, DEFAULT_NAMESPACE
        if separator:
            host, separator, parts["namespace"] = rest.rpartition("/")
            if separator:
                parts["host"] = host.partition("://")[2] if "://" in host else host
        for part in ("host", "namespace", "model", "tag"):
            _check_part(text, part, parts[part])
        return cls(**parts)

    @classmethod
    def from_path(cls, path: str) -> Name:
        """The name kept at host/namespace/model/tag. Raises InvalidName."""
        parts = path.split("/")
        if len(parts) != 4:
            raise InvalidName(path, "expected host/namespace/model/tag")
        for part, value in zip(_EXTRA, parts, strict=True):
            _check_part(path, part, value)
        return cls(*parts)

    @property
    def path(self) -> tuple[str, str, str, str]:
        """The folders and the file of the manifest, below manifests/."""
        return (self.host, self.namespace, self.model, self.tag)

    @property
    def folded(self) -> tuple[str, str, str, str]:
        """What is equal for names of the same model."""
        host, namespace, model, tag = (part.lower() for part in self.path)
        return (host, namespace, model, tag)

    @property
    def short_with_tag(self) -> str:
        """The shortest form that still shows the tag: "ember:latest"."""
        name = f"{self.model}:{self.tag}"
        if self.host.lower() != DEFAULT_HOST:
            return f"{self.host}/{self.namespace}/{name}"
        if self.namespace.lower() != DEFAULT_NAMESPACE:
            return f"{self.namespace}/{name}"
        return name

    @property
    def short(self) -> str:
        """The shortest form that parses back to this name: "ember", "user/m:q4"."""
        return self.short_with_tag.removesuffix(f":{DEFAULT_TAG}")

    def __str__(self) -> str:
        return f"{self.host}/{self.namespace}/{self.model}:{self.tag}"


def is_valid_part(part: NamePart, text: str) -> bool:
    """True when text may stand as that part of a name."""
    return len(text) <= _MAX_CHARACTERS[part] and _FORMS[part].fullmatch(text) is not None


def nearest(text: str, names: Iterable[Name], limit: int = 3) -> tuple[str, ...]:
    """The short forms of the names most like text, best first; none that is too far away."""
    wanted = text.lower()
    forms = {name.short.lower(): name.short for name in names}
    forms |= {name.model.lower(): name.short for name in names if name.model.lower() not in forms}
    close = difflib.get_close_matches(wanted[:200], forms, n=limit * 2, cutoff=0.6)
    close += [form for form in sorted(forms) if len(wanted) > 2 and wanted in form]
    return tuple(dict.fromkeys(forms[form] for form in close))[:limit]


def _cut_tag(text: str) -> tuple[str, str | None]:
    """text without its tag, and the tag: what follows the last colon after the last slash."""
    before, colon, after = text.rpartition(":")
    if not colon or "/" in after:
        return text, None
    return before, after


def _check_part(text: str, part: str, value: str) -> None:
    if not value:
        raise InvalidName(text, f"the {part} is empty")
    if len(value) > _MAX_CHARACTERS[part]:
        raise InvalidName(text, f"the {part} is longer than {_MAX_CHARACTERS[part]} characters")
    if _FORMS[part].fullmatch(value) is None:
        allowed = "letters, digits, '_', '-'" + "".join(f", {c!r}" for c in _EXTRA[part])
        raise InvalidName(
            text, f"the {part} may contain {allowed} and must start with a letter, digit or '_'"
        )
