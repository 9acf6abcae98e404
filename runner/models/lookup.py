"""Finds an installed model by the name a client wrote; turns the registry's errors into the
runner's."""

from __future__ import annotations

from registry.errors import InvalidName, ModelMissing
from registry.names import Name
from registry.store import Store, StoredModel
from runner.errors import InvalidRequest, ModelInvalid, ModelNotFound


def parse_name(text: str) -> Name:
    """The name in text. Raises InvalidRequest."""
    try:
        return Name.parse(text)
    except InvalidName as error:
        raise InvalidRequest(error.message, param="model") from None


def find(store: Store, text: str) -> StoredModel:
    """The installed model called text. Raises InvalidRequest, ModelNotFound with near names,
    ModelInvalid when its files are damaged."""
    name = parse_name(text)
    try:
        stored = store.get(name)
    except ModelMissing as error:
        suggestions = list(error.suggestions)
        raise ModelNotFound(error.message, model=text, suggestions=suggestions) from None
    if stored.fault is not None:
        raise ModelInvalid(f"model {name.short} cannot be used: {stored.fault}", model=text)
    return stored
