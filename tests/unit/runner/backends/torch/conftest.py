"""ember on the torch backend, and rows for it. Without torch there is nothing to test here."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from runner.backends.backend import LoadedBackend
from runner.types import LoadPlan

if find_spec("torch") is None:
    collect_ignore_glob = ["*"]

EMBER = Path(__file__).parents[5] / "registry/builtin/ember/ember.gguf"


def ember_plan(backend: str, **changes: object) -> LoadPlan:
    values: dict[str, object] = {
        "path": str(EMBER),
        "backend": backend,
        "context_length": 512,
        "pool_tokens": 1024,
        "max_sequences": 8,
        "batch_tokens": 256,
        "threads": 1,
        "draft_tokens": 4,
    }
    return LoadPlan(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def ember() -> Iterator[LoadedBackend]:
    from runner.backends.torch import load

    model = load(ember_plan("torch"), lambda _share: None)
    yield model
    model.backend.close()


@pytest.fixture(scope="module")
def ember_llamacpp() -> Iterator[LoadedBackend]:
    from runner.backends.llamacpp import load

    model = load(ember_plan("llamacpp"), lambda _share: None)
    yield model
    model.backend.close()


@pytest.fixture
def loaded(ember: LoadedBackend) -> Iterator[LoadedBackend]:
    """ember with an empty cache."""
    yield ember
    ember.backend.reset()
