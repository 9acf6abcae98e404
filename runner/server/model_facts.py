"""What lists tell of each installed model: read from its files once, and kept for as long as it is
installed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from runner.library.descriptions import ModelDetails, read_if_whole, stored_details, with_lengths
from runner.library.library import Library
from runner.library.models import StoredModel
from runner.models.capabilities import model_capabilities


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """capabilities: in Ollama's words. Numbers that a file does not say are 0."""

    details: ModelDetails
    capabilities: tuple[str, ...] = ()
    vocabulary: int = 0
    parameters: int = 0
    tensors_bytes: int = 0


class KnownModels:
    """The facts of installed models. A daemon that makes and removes models for months keeps
    nothing of them."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._known: dict[StoredModel, ModelFacts] = {}

    async def facts(self, stored: StoredModel) -> ModelFacts:
        """Of an installed model; little of one that is damaged."""
        known = self._known.get(stored)
        if known is None:
            known = self._known[stored] = await asyncio.to_thread(_read, self._library, stored)
        return known

    def keep_only(self, installed: Iterable[StoredModel]) -> None:
        """Forget all others."""
        for gone in self._known.keys() - set(installed):
            self._known.pop(gone, None)


def _read(library: Library, stored: StoredModel) -> ModelFacts:
    details, bundle = stored_details(library, stored), read_if_whole(library, stored)
    if bundle is None:
        return ModelFacts(details)
    header = bundle.header
    return ModelFacts(
        details=with_lengths(details, bundle),
        capabilities=tuple(model_capabilities(bundle).names()),
        vocabulary=header.vocabulary_size or 0,
        parameters=header.parameter_count,
        tensors_bytes=header.tensors_size_bytes,
    )
