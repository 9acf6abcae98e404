"""What the lists of models tell of each: read from its file once, and kept by its digest."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from runner.errors import HearthError
from runner.leaf_errors import as_hearth_error
from runner.library.library import Library
from runner.library.models import StoredModel
from runner.models.capabilities import model_capabilities

_KEPT = 1024
_known: OrderedDict[str, ModelFacts] = OrderedDict()


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """capabilities: in Ollama's words. Numbers that a file does not say are 0."""

    capabilities: tuple[str, ...] = ()
    vocabulary: int = 0
    trained_context: int = 0
    embedding_length: int = 0
    parameters: int = 0
    size_bytes: int = 0


async def model_facts(library: Library, stored: StoredModel) -> ModelFacts:
    """Of an installed model; nothing of one that cannot be read."""
    key = str(stored.digest)
    if key not in _known:
        _known[key] = await asyncio.to_thread(_read, library, stored)
        if len(_known) > _KEPT:
            _known.popitem(last=False)
    return _known[key]


def _read(library: Library, stored: StoredModel) -> ModelFacts:
    try:
        bundle = library.read(stored)
    except Exception as error:
        if isinstance(error, HearthError) or as_hearth_error(error) is not None:
            return ModelFacts()
        raise
    header = bundle.header
    return ModelFacts(
        capabilities=tuple(model_capabilities(bundle).names()),
        vocabulary=header.vocabulary_size or 0,
        trained_context=header.context_length or 0,
        embedding_length=header.embedding_length or 0,
        parameters=header.parameter_count,
        size_bytes=header.tensors_size_bytes,
    )
