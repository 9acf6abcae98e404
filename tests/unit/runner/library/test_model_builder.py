from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modelfile.errors import ConvertError
from registry.store import Store
from runner.library import model_builder
from tests.unit.modelfile.convert.checkpoints import CONFIG

FP8 = {**CONFIG, "quantization_config": {"quant_method": "fp8"}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "models")
    yield opened
    opened.close()


def look_at(store: Store, config: dict[str, Any]) -> None:
    """What a pull does as soon as it has config.json."""
    content = json.dumps(config).encode()
    with store.blob_writer() as writer:
        writer.write(content)
        digest, _ = writer.commit()
    model_builder._check_architecture(store, digest)


def test_a_quantized_checkpoint_is_welcome_where_pytorch_is(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_builder, "find_spec", lambda name: object())
    look_at(store, FP8)


def test_without_pytorch_it_is_refused_before_its_weights_are_fetched(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_builder, "find_spec", lambda name: None)
    with pytest.raises(ConvertError, match=r"install hearth with \./install\.sh --with-torch"):
        look_at(store, FP8)
    look_at(store, CONFIG)


def test_a_quantization_that_is_not_known_is_refused_then_too(store: Store) -> None:
    config = {**CONFIG, "quantization_config": {"quant_method": "bitsandbytes"}}
    with pytest.raises(ConvertError, match=r"'bitsandbytes' is not supported; known are fp8"):
        look_at(store, config)
