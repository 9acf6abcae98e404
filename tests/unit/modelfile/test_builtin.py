"""The built-in models: seeded once, refreshed when untouched, the user's choice respected."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from modelfile.build import build
from modelfile.builtin import seed_builtin
from modelfile.description import Description
from registry.bundle import read_bundle
from registry.names import Name
from registry.store import Store
from tests.gguf_files import echo_file
from tests.unit.registry.faulty_disk import faulty_disk

TINY = Name.parse("tiny")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "models")
    yield opened
    opened.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "builtin"
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny" / "tiny.gguf").write_bytes(echo_file())
    publish(folder, "first")
    return folder


def publish(source: Path, system: str) -> None:
    """Ship a version of the built-in model."""
    path = source / "tiny" / "Modelfile"
    path.write_text(f"FROM ./tiny.gguf\nSYSTEM {system}\n")
    mark = path.stat().st_mtime_ns + 10**9 * len(system)
    os.utime(path, ns=(mark, mark))


def system(store: Store) -> str | None:
    return read_bundle(store, store.get(TINY)).system


def test_a_fresh_store_gets_the_model_once(store: Store, source: Path) -> None:
    assert seed_builtin(store, source) == [TINY]
    assert system(store) == "first"
    assert seed_builtin(store, source) == []


def test_a_removed_model_stays_removed(store: Store, source: Path) -> None:
    seed_builtin(store, source)
    store.delete(TINY)
    assert seed_builtin(store, source) == []
    publish(source, "second")
    assert seed_builtin(store, source) == []
    assert store.models() == []


def test_an_untouched_model_follows_the_package(store: Store, source: Path) -> None:
    seed_builtin(store, source)
    publish(source, "second")
    assert seed_builtin(store, source) == [TINY]
    assert system(store) == "second"
    publish(source, "third")
    assert seed_builtin(store, source) == [TINY]
    assert system(store) == "third"


def test_a_model_that_the_user_changed_is_left_alone(store: Store, source: Path) -> None:
    seed_builtin(store, source)
    list(build(store, Description(TINY, from_model=TINY, system="mine")))
    publish(source, "second")
    assert seed_builtin(store, source) == []
    assert system(store) == "mine"


def test_a_model_of_the_users_own_is_never_replaced(store: Store, source: Path) -> None:
    with store.blob_writer() as writer:
        writer.write(echo_file())
        digest, _ = writer.commit()
    list(build(store, Description(TINY, files={"x.gguf": digest}, system="mine")))
    assert seed_builtin(store, source) == []
    publish(source, "second")
    assert seed_builtin(store, source) == []
    assert system(store) == "mine"


def test_a_model_without_weights_is_passed_over(store: Store, source: Path) -> None:
    (source / "tiny" / "tiny.gguf").unlink()
    assert seed_builtin(store, source) == []
    assert store.models() == []


def test_broken_weights_are_logged_and_leave_nothing(
    store: Store, source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (source / "tiny" / "tiny.gguf").write_bytes(b"broken")
    assert seed_builtin(store, source) == []
    assert "the built-in model tiny was skipped: invalid GGUF" in caplog.text
    assert not list((store.root / "blobs").iterdir())


def test_a_full_disk_leaves_nothing_and_the_next_start_tries_again(
    store: Store, source: Path
) -> None:
    with faulty_disk(2):
        assert seed_builtin(store, source) == []
    assert store.models() == []
    assert seed_builtin(store, source) == [TINY]


def test_the_models_of_the_package_can_be_seeded(store: Store) -> None:
    names = seed_builtin(store)
    assert [model.fault for model in store.models()] == [None] * len(names)
