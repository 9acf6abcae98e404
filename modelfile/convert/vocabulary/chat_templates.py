"""The chat templates of a folder.

Knows nothing of what a template does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from modelfile.convert.files import (
    MAX_TEMPLATE_BYTES,
    brief,
    read_object,
    read_text,
    refusal,
)
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.vocabulary.added import TOKENIZER_CONFIG, tokenizer_config

_FILE: Final = "chat_template.jinja"
_JSON: Final = "chat_template.json"
_MORE: Final = re.compile(r"additional_chat_templates/([^/]+)\.jinja")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAX_TEMPLATES: Final = 64
_DEFAULT: Final = "default"


def chat_template_metadata(files: Mapping[str, Path]) -> tuple[MetadataValue, ...]:
    """The template, the named ones and the list of their names. A file of its own is believed
    before a field of a config. Raises ConvertError, OSError."""
    found = _templates(files)
    values = [
        MetadataValue(f"tokenizer.chat_template.{name}", "string", text)
        for name, text in sorted(found.items())
        if name != _DEFAULT
    ]
    if values:
        names = sorted(name for name in found if name != _DEFAULT)
        values.append(MetadataValue("tokenizer.chat_templates", "strings", names))
    if _DEFAULT in found:
        values.append(MetadataValue("tokenizer.chat_template", "string", found[_DEFAULT]))
    return tuple(values)


def _templates(files: Mapping[str, Path]) -> dict[str, str]:
    found = _named(tokenizer_config(files).get("chat_template"), TOKENIZER_CONFIG)
    found |= _named(read_object(files, _JSON).get("chat_template"), _JSON)
    more = [(match[1], name) for name in files if (match := _MORE.fullmatch(name))]
    if _FILE in files:
        more.append((_DEFAULT, _FILE))
    for name, file in more:
        found[_checked(name, file)] = read_text(files, file, MAX_TEMPLATE_BYTES)
        _check_count(len(found), file)
    return found


def _named(value: Any, file: str) -> dict[str, str]:
    """One text, a list of names and texts, or an object of them."""
    if value is None:
        return {}
    if isinstance(value, str):
        value = {_DEFAULT: value}
    if isinstance(value, list):
        value = dict(_entry(entry, file) for entry in value)
    if not isinstance(value, dict):
        raise refusal(file, "chat_template", f"{brief(value)}, expected a string or a list")
    _check_count(len(value), file)
    for name, text in value.items():
        _checked(name, file)
        if not isinstance(text, str) or len(text.encode(errors="replace")) > MAX_TEMPLATE_BYTES:
            expected = f"expected a string of at most {MAX_TEMPLATE_BYTES} bytes"
            raise refusal(file, f"chat_template {name}", expected)
    return dict(value)


def _entry(entry: Any, file: str) -> tuple[str, Any]:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str):
        raise refusal(file, "chat_template", f"{brief(entry)}, expected a name and a template")
    return name, entry.get("template")


def _checked(name: str, file: str) -> str:
    if not _NAME.fullmatch(name):
        raise refusal(
            file, "chat_template", f"{brief(name)} is not a name of letters, digits, . - and _"
        )
    return name


def _check_count(count: int, file: str) -> None:
    if count > _MAX_TEMPLATES:
        raise refusal(file, "chat_template", f"{count} templates, more than {_MAX_TEMPLATES}")
