"""Models described for people: details, parameters as text, the Modelfile that would make them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from modelfile.ast import Command, Modelfile
from registry.bundle import Bundle
from registry.errors import RegistryError
from registry.formats.gguf.projector_rules import ARCHITECTURE as PROJECTOR
from registry.manifest import PROJECTOR_TYPE
from registry.store import Store, StoredModel
from runner.library.library import Library

_MAX_CONFIG_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelDetails:
    """What a model is, in a few words; "" or None for what is not known. families: its own and that
    of its projector."""

    family: str
    families: tuple[str, ...]
    parameter_size: str
    quantization: str
    context_length: int | None = None
    embedding_length: int | None = None


def read_if_whole(library: Library, stored: StoredModel) -> Bundle | None:
    """An installed model; None for a damaged one. Blocks on the disk."""
    if stored.parsed is None:
        return None
    try:
        return library.read(stored)
    except RegistryError:
        return None


def stored_details(library: Library, stored: StoredModel) -> ModelDetails:
    """Of an installed model, from its config. Blocks on the disk."""
    if stored.parsed is None:
        return _details("", [], "", "")
    try:
        config = _config(library.store, stored)
    except (RegistryError, ValueError, RecursionError):
        config = {}
    projectors = [PROJECTOR] if stored.parsed.of_type(PROJECTOR_TYPE) else []
    given = (config.get(key) for key in ("model_family", "model_type", "file_type"))
    family, size, kind = (text if isinstance(text, str) else "" for text in given)
    return _details(family, projectors, size, kind)


def bundle_details(bundle: Bundle) -> ModelDetails:
    """The same, from the model file's own header."""
    header = bundle.header
    projectors = [] if bundle.projector is None else [bundle.projector.header.architecture]
    details = _details(header.architecture, projectors, header.parameter_size, header.quantization)
    return with_lengths(details, bundle)


def with_lengths(details: ModelDetails, bundle: Bundle) -> ModelDetails:
    """details with what only the model file says."""
    header = bundle.header
    return replace(
        details, context_length=header.context_length, embedding_length=header.embedding_length
    )


def _details(family: Any, projectors: list[str], size: Any, quantization: Any) -> ModelDetails:
    families = (*([family] if family else []), *projectors)
    return ModelDetails(family or "", families, size or "", quantization or "")


def _config(store: Store, stored: StoredModel) -> dict[str, Any]:
    value = json.loads(store.read_blob(stored.manifest.config.digest, _MAX_CONFIG_BYTES))
    return value if isinstance(value, dict) else {}


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
    names = (
        ("renderer", bundle.renderer),
        ("parser", bundle.parser),
        ("requires", bundle.requires),
    )
    commands += [Command(instruction, name) for instruction, name in names if name]
    return Modelfile(tuple(commands))


def _flat(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in parameters.items():
        for item in value if isinstance(value, list | tuple) else (value,):
            yield name, item if isinstance(item, str) else json.dumps(item)
