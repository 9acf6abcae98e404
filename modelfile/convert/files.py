"""Bounded reading of the files of a Hugging Face folder beside its weights.

Knows JSON and text, not what the fields mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from modelfile.errors import ConvertError
from registry.atomic import read_regular
from registry.errors import BlobDamaged, InvalidSafetensors, shown
from registry.formats.safetensors.strict_json import parse_object

TOKENIZER: Final = "tokenizer.json"
MAX_TOKENIZER_BYTES: Final = 256 << 20  # tokenizer.json of a vocabulary of 256k tokens: 33 MB
MAX_CONFIG_BYTES: Final = 4 << 20
MAX_TEMPLATE_BYTES: Final = 1 << 20


def read_bytes(files: Mapping[str, Path], name: str, max_bytes: int = MAX_TOKENIZER_BYTES) -> bytes:
    """The content of a file. Raises ConvertError when it is longer than max_bytes, OSError."""
    try:
        content = read_regular(files[name], max_bytes)
    except BlobDamaged as error:
        raise ConvertError(f"{name}: {error.message}") from None
    if len(content) > max_bytes:
        raise ConvertError(f"{name} is longer than {max_bytes} bytes")
    return content


def read_text(files: Mapping[str, Path], name: str, max_bytes: int = MAX_TOKENIZER_BYTES) -> str:
    """The UTF-8 text of a file. Raises ConvertError, OSError."""
    try:
        return read_bytes(files, name, max_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConvertError(f"{name} is not UTF-8 at byte {error.start}") from None


def read_object(
    files: Mapping[str, Path], name: str, max_bytes: int = MAX_CONFIG_BYTES
) -> Mapping[str, Any]:
    """The JSON object in a file; empty where there is none. Raises ConvertError, OSError."""
    if name not in files:
        return {}
    try:
        return parse_object(read_bytes(files, name, max_bytes), name)
    except InvalidSafetensors as error:
        message = error.message.removeprefix("invalid safetensors: ")
        prefix = "" if message.startswith(name) else f"{name}: "
        raise ConvertError(f"{prefix}{message}") from None


def read_list(files: Mapping[str, Path], name: str) -> list[Any]:
    """The JSON array in a file; empty where there is none. Raises ConvertError, OSError."""
    if name not in files:
        return []
    content = read_bytes(files, name, MAX_CONFIG_BYTES)
    try:
        found = parse_object(b'{"items":' + content + b"}", name).get("items")
    except InvalidSafetensors as error:
        raise ConvertError(error.message.removeprefix("invalid safetensors: ")) from None
    if not isinstance(found, list):
        raise ConvertError(f"{name} is not a JSON array")
    return found


def refusal(file: str, field: str, message: str) -> ConvertError:
    """The error about one field of a file."""
    return ConvertError(f"{file}: {field}: {message}")


def fault(field: str, message: str) -> ConvertError:
    """The error about one field of tokenizer.json."""
    return refusal(TOKENIZER, field, message)


def brief(value: Any) -> str:
    """A value as messages show it, quoted and short."""
    return "missing" if value is None else shown(value if isinstance(value, str) else repr(value))


def child(value: Mapping[str, Any], key: str, file: str = TOKENIZER) -> Mapping[str, Any]:
    """The object below a key; empty where it is missing or null. Raises ConvertError."""
    found = value.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise refusal(file, key, f"{brief(found)}, expected an object")
    return found


def items(value: Mapping[str, Any], key: str, file: str = TOKENIZER) -> list[Any]:
    """The list below a key; empty where it is missing or null. Raises ConvertError."""
    found = value.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise refusal(file, key, f"{brief(found)}, expected a list")
    return found


def flag(value: Mapping[str, Any], key: str, file: str = TOKENIZER) -> bool | None:
    """True or false, None where it is missing or null. Raises ConvertError."""
    found = value.get(key)
    if found is not None and not isinstance(found, bool):
        raise refusal(file, key, f"{brief(found)}, expected true or false")
    return found


def token_id(value: Any, file: str, field: str) -> int:
    """A token's id. Raises ConvertError unless it is a whole number from 0."""
    if type(value) is not int or value < 0:
        raise refusal(file, field, f"{brief(value)}, expected an id from 0")
    return value


def objects(values: list[Any], field: str) -> list[dict[str, Any]]:
    """A list of tokenizer.json as it is. Raises ConvertError unless all are objects."""
    for value in values:
        if not isinstance(value, dict):
            raise fault(field, f"{brief(value)}, expected an object")
    return values
