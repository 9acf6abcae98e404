"""What a bundle shall be made of: the typed form of a Modelfile or of a create request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from modelfile.ast import Modelfile
from modelfile.errors import BuildError, ParameterError
from modelfile.families import unknown_name
from modelfile.parameters import parse_value
from registry.bundle import BundleMessage
from registry.digest import Digest
from registry.names import Name

MAX_NAME_CHARACTERS = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_VERSION = re.compile(r"v?\d{1,9}(\.\d{1,9}){0,2}([-+][0-9A-Za-z.-]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Description:
    """A bundle to be. Exactly one of from_model (an installed model) and files (one GGUF blob of
    the store by its file name) is given. None: taken from from_model, if it has one; an empty
    text or list removes it. parameters are added to those of from_model, licenses too. renderer
    and parser are names of model families; requires is a version of Ollama, which is not compared
    with hearth's own. weights: a GGUF blob in the place of those of from_model. adapters: blobs of
    LoRA adapters in GGUF, in the place of those of from_model. draft: a GGUF blob, the
    model that proposes tokens, in the place of that of from_model; projector likewise: what makes
    embeddings of images."""

    name: Name
    from_model: Name | None = None
    files: Mapping[str, Digest] = field(default_factory=dict)
    template: str | None = None
    system: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[BundleMessage, ...] | None = None
    licenses: tuple[str, ...] = ()
    renderer: str | None = None
    parser: str | None = None
    requires: str | None = None
    weights: Digest | None = None
    adapters: tuple[Digest, ...] | None = None
    draft: Digest | None = None
    projector: Digest | None = None


def from_modelfile(
    modelfile: Modelfile,
    name: Name,
    files: Mapping[str, Digest] | None = None,
    adapters: tuple[Digest, ...] | None = None,
    draft: Digest | None = None,
    projector: Digest | None = None,
) -> Description:
    """What a Modelfile describes. files: the store's blobs for a FROM that is a file, by file
    name; None when FROM names an installed model. adapters: the blobs for ADAPTER. draft: the one
    for DRAFT. projector: the one for the second FROM.

    Raises ParameterError with the line, BuildError, InvalidName.
    """
    sources = modelfile.sources
    if len(sources) != (1 if projector is None else 2):
        raise BuildError(
            f"{len(sources)} FROM lines; use one for the model and at most one for its"
            " multimodal projector"
        )
    if len(modelfile.values("adapter")) != len(adapters or ()):
        raise BuildError("ADAPTER names a file that was not provided")
    if (modelfile.last("draft") is None) is not (draft is None):
        raise BuildError("DRAFT names a file that was not provided")
    messages = tuple(BundleMessage(role, text) for role, text in modelfile.messages)
    return Description(
        name=name,
        from_model=Name.parse(sources[0]) if files is None else None,
        files=files or {},
        template=modelfile.template,
        system=modelfile.system,
        parameters=_parameters(modelfile),
        messages=messages or None,
        licenses=modelfile.licenses,
        renderer=modelfile.last("renderer"),
        parser=modelfile.last("parser"),
        requires=modelfile.last("requires"),
        adapters=adapters,
        draft=draft,
        projector=projector,
    )


def check_family_names(description: Description, inherited: Mapping[str, Any]) -> None:
    """Refuse a renderer, a parser or a required version that cannot be one. inherited: the
    configuration of the model that it is made from, whose names are taken as they are, known or
    not. Raises BuildError."""
    for instruction in ("renderer", "parser"):
        name = getattr(description, instruction)
        if not name or name == inherited.get(instruction):
            continue
        if len(name) > MAX_NAME_CHARACTERS or _NAME.fullmatch(name) is None:
            raise BuildError(
                f"{instruction.upper()} is {name[:60]!r}, expected a name such as qwen3-coder"
            )
        if (fault := unknown_name(instruction, name)) is not None:
            raise BuildError(fault)
    required = description.requires
    if required and (len(required) > MAX_NAME_CHARACTERS or _VERSION.fullmatch(required) is None):
        raise BuildError(f"REQUIRES is {required[:60]!r}, expected a version such as 0.14.0")


def _parameters(modelfile: Modelfile) -> dict[str, Any]:
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
