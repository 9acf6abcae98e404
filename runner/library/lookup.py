"""Finds an installed model by the name a client wrote; turns the registry's errors into the
runner's."""

from __future__ import annotations

from registry.errors import InvalidName, InvalidShortNames, ModelMissing, shown
from registry.hosts.references import parse
from registry.names import Name
from registry.shortnames import ShortNames
from registry.store import Store, StoredModel
from runner.errors import InvalidRequest, ModelInvalid, ModelNotFound


def parse_name(text: str, param: str = "model") -> Name:
    """The name in text, which is that of the field param. Raises InvalidRequest."""
    try:
        return Name.parse(text)
    except InvalidName as error:
        raise InvalidRequest(error.message, param=param) from None


def find(store: Store, text: str, short_names: ShortNames | None = None) -> StoredModel:
    """The installed model called text, or the one that text is a short name for. Raises
    InvalidRequest, ModelNotFound with near names, ModelInvalid when its files are damaged."""
    name = parse_name(text)
    try:
        stored = _get(store, name, text, short_names)
    except InvalidShortNames as error:
        raise InvalidRequest(error.message, param="model") from None
    except ModelMissing as error:
        # The words that clients of Ollama look for.
        message = f"model {shown(error.name)} not found, try pulling it first{error.hint}"
        raise ModelNotFound(message, model=text, suggestions=list(error.suggestions)) from None
    if stored.fault is not None:
        raise ModelInvalid(f"model {name.short} is unusable: {stored.fault}", model=text)
    return stored


def _get(store: Store, name: Name, text: str, short_names: ShortNames | None) -> StoredModel:
    """Raises ModelMissing for the name that was written, InvalidShortNames."""
    try:
        return store.get(name)
    except ModelMissing as error:
        place = text if short_names is None else short_names.expand(text)
        if place == text:
            raise
        try:
            return store.get(parse(place).name)
        except ModelMissing:
            raise error from None
