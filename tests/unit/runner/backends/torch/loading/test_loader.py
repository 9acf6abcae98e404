"""What the loader says of models it cannot load, and of what it has loaded."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from runner.backends.backend import LoadedBackend
from runner.backends.torch import availability
from runner.backends.torch.loading.loader import load
from runner.errors import ModelLoadFailed
from tests.gguf_files import gguf_file, text
from tests.unit.runner.backends.torch.checkpoints import llama_tensors, write_checkpoint
from tests.unit.runner.backends.torch.conftest import ember_plan


def test_ember_is_described_with_its_template(ember: LoadedBackend) -> None:
    assert ember.chat_template is not None
    assert ember.backend.capacity.context_length == 512
    assert ember.tokenizer.vocabulary == ember.backend.capacity.vocabulary == 4096


def test_progress_grows_to_one() -> None:
    shares: list[float] = []
    load(ember_plan("torch"), shares.append).backend.close()
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_what_progress_raises_ends_the_load() -> None:
    def stop(_share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(ember_plan("torch"), stop)


def test_a_folder_is_sent_to_create(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m", llama_tensors())
    with pytest.raises(ModelLoadFailed, match="m is a folder"):
        load(ember_plan("torch", path=str(folder)), lambda _share: None)


def test_an_architecture_that_is_not_known_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_file({"general.architecture": text("mamba")}, []))
    with pytest.raises(ModelLoadFailed, match=r"mamba.*it knows.*llama.*Use the backend llamacpp"):
        load(ember_plan("torch", path=str(path)), lambda _share: None)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(ModelLoadFailed, match=r"m\.gguf"):
        load(ember_plan("torch", path=str(path)), lambda _share: None)


def test_without_torch_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "find_spec", lambda _name: None)
    with pytest.raises(ModelLoadFailed, match=r"\./install\.sh --with-torch"):
        availability.require_torch()
    monkeypatch.setattr(availability, "find_spec", importlib.util.find_spec)
    availability.require_torch()
