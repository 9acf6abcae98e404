"""What a bundle is to be built from: the typed form of a Modelfile or of a create request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from modelfile.ast import Modelfile
from modelfile.errors import BuildError, ParameterError
from modelfile.parameters import parse_value
from registry.bundle import BundleMessage
from registry.digest import Digest
from registry.names import Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """What a bundle shall have besides its weights. None: that of the model that it is made from;
    an empty text or list removes it. parameters are added to those of that model, licenses too.
    renderer and parser are names of model families; requires is a version of Ollama."""

    template: str | None = None
    system: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[BundleMessage, ...] | None = None
    licenses: tuple[str, ...] = ()
    renderer: str | None = None
    parser: str | None = None
    requires: str | None = None


@dataclass(frozen=True, slots=True)
class Description(Instructions):
    """A bundle to be. Exactly one of from_model (an installed model) and files (one GGUF blob of
    the store by its file name) is given. weights: a GGUF blob in the place of those of from_model.
    adapters: blobs of LoRA adapters in GGUF, in the place of those of from_model. draft: a GGUF
    blob, the model that proposes tokens, in the place of that of from_model; projector likewise:
    what makes embeddings of images. perplexity: what was measured of weights that were quantized
    for it, see registry.bundle.Bundle."""

    name: Name
    from_model: Name | None = None
    files: Mapping[str, Digest] = field(default_factory=dict)
    weights: Digest | None = None
    adapters: tuple[Digest, ...] | None = None
    draft: Digest | None = None
    projector: Digest | None = None
    perplexity: Mapping[str, Any] | None = None


def from_modelfile(
    modelfile: Modelfile, name: Name, files: Mapping[str, Digest] | None = None
) -> Description:
    """What a Modelfile of one FROM describes. files: the store's blob for a FROM that is a file, by
    file name; None when FROM names an installed model.

    Raises ParameterError with the line, BuildError, InvalidName.
    """
    sources = modelfile.values("from")
    if len(sources) != 1:
        raise BuildError(f"{len(sources)} FROM lines; use one")
    for instruction in ("adapter", "draft"):
        if modelfile.last(instruction) is not None:
            raise BuildError(f"{instruction.upper()} names a file that was not provided")
    messages = tuple(BundleMessage(role, text) for role, text in modelfile.messages)
    return Description(
        name=name,
        from_model=Name.parse(sources[0]) if files is None else None,
        files=files or {},
        template=modelfile.last("template"),
        system=modelfile.last("system"),
        parameters=parameter_values(modelfile),
        messages=messages or None,
        licenses=modelfile.values("license"),
        renderer=modelfile.last("renderer"),
        parser=modelfile.last("parser"),
        requires=modelfile.last("requires"),
    )


def parameter_values(modelfile: Modelfile) -> dict[str, Any]:
    """The values of its parameters; those of one that repeats are together, a deprecated one is
    left out. Raises ParameterError with the line."""
    values: dict[str, Any] = {}
    for command in modelfile.parameters:
        try:
            value = parse_value(command.name, command.value)
        except ParameterError as error:
            raise ParameterError(f"line {command.line}: {error.message}", error.name) from None
        if isinstance(value, tuple):
            values[command.name] = (*values.get(command.name, ()), *value)
        elif value is not None:
            values[command.name] = value
    return values


def create_fields(modelfile: Modelfile) -> dict[str, Any]:
    """What a request to create a model has besides the weights. Raises ParameterError."""
    fields: dict[str, Any] = {
        "template": modelfile.last("template"),
        "system": modelfile.last("system"),
        "license": list(modelfile.values("license")) or None,
        "parameters": parameter_values(modelfile) or None,
        "messages": [{"role": role, "content": text} for role, text in modelfile.messages] or None,
        "renderer": modelfile.last("renderer"),
        "parser": modelfile.last("parser"),
        "requires": modelfile.last("requires"),
    }
    return {field: value for field, value in fields.items() if value is not None}
