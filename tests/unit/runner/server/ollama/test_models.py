"""The list of installed models."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from registry.bundle import read_bundle
from registry.store import Store
from runner.library.library import Library
from runner.server.http_request import HttpRequest
from runner.server.model_facts import KnownModels
from runner.server.ollama import models
from runner.server.services import Services
from tests.echo_models import install_echo


@pytest.mark.asyncio
async def test_what_was_told_of_a_removed_model_is_forgotten(tmp_path: Path) -> None:
    """A daemon that makes and removes models for months keeps nothing of them."""
    store = Store.open(tmp_path)
    crashes = SimpleNamespace(find=lambda digest: None)
    library = SimpleNamespace(store=store, models=store.models, read=partial(read_bundle, store))
    known = KnownModels(cast(Library, library))
    services = SimpleNamespace(
        library=library, models=SimpleNamespace(crashes=crashes), known_models=known
    )
    http = cast(HttpRequest, SimpleNamespace(services=cast(Services, services)))
    try:
        for number in range(3):
            install_echo(store, f"echo{number}")
        assert len((await models.tags(http))["models"]) == 3
        for _ in range(2):
            store.delete(store.models()[0].name)
        assert len((await models.tags(http))["models"]) == 1
        assert set(known._known) == set(store.models())
    finally:
        store.close()
