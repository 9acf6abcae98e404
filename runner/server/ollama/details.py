"""Models described for people: details, parameters as text, the Modelfile that would make them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from modelfile.ast import Command, Modelfile
from modelfile.projectors import ARCHITECTURE as PROJECTOR
from registry.bundle import Bundle
from registry.errors import RegistryError
from registry.manifest import PROJECTOR_TYPE
from registry.store import Store, StoredModel

_MAX_CONFIG_BYTES = 1 << 20


def details_of(store: Store, stored: StoredModel) -> dict[str, Any]:
    """details of /api/tags, /api/ps and /api/show, from the model's config."""
    try:
        config = _config(store, stored)
    except (RegistryError, ValueError):
        config = {}
    family = config.get("model_family")
    others = [PROJECTOR] if stored.manifest.of_type(PROJECTOR_TYPE) else []
    return _details(family, others, config.get("model_type"), config.get("file_type"))


def details_of_bundle(bundle: Bundle) -> dict[str, Any]:
    """The same, from the model file's own header."""
    header = bundle.header
    others = [] if bundle.projector is None else [bundle.projector.header.architecture]
    return _details(header.architecture, others, header.parameter_size, header.quantization)


def _details(family: Any, others: list[str], size: Any, quantization: Any) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family or "",
        "families": [*([family] if family else []), *others],
        "parameter_size": size or "",
        "quantization_level": quantization or "",
    }


def _config(store: Store, stored: StoredModel) -> dict[str, Any]:
    value = json.loads(_config_bytes(store, stored.manifest.config.digest))
    return value if isinstance(value, dict) else {}


@lru_cache(maxsize=256)
def _config_bytes(store: Store, digest: Any) -> bytes:
    return store.read_blob(digest, _MAX_CONFIG_BYTES)


def parameter_lines(parameters: Mapping[str, Any]) -> str:
    """The Modelfile's parameters as Ollama prints them, in two columns."""
    return "\n".join(f"{name:<30} {value}" for name, value in _flat(parameters))


def describe_modelfile(bundle: Bundle) -> Modelfile:
    """A Modelfile that makes this model again from itself."""
    commands = [Command("from", bundle.name.short)]
    if bundle.template is not None:
        commands.append(Command("template", bundle.template))
    if bundle.system is not None:
        commands.append(Command("system", bundle.system))
    commands += [Command("parameter", text, name) for name, text in _flat(bundle.parameters)]
    commands += [Command("message", item.content, item.role) for item in bundle.messages]
    commands += [Command("license", text) for text in bundle.licenses]
    notations = (
        ("renderer", bundle.renderer),
        ("parser", bundle.parser),
        ("requires", bundle.requires),
    )
    commands += [Command(instruction, name) for instruction, name in notations if name]
    return Modelfile(tuple(commands))


def _flat(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in parameters.items():
        for item in value if isinstance(value, list | tuple) else (value,):
            yield name, item if isinstance(item, str) else json.dumps(item)
