"""The store under random work while system calls fail: an operation is done wholly or not at
all, and every listed model stays whole."""

from __future__ import annotations

import errno
import shutil
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from registry.digest import Digest
from registry.errors import ModelMissing, StoreError
from registry.gc import GcOptions, collect
from registry.manifest import CONFIG_TYPE, MODEL_TYPE, Descriptor, Manifest
from registry.names import Name
from registry.store import Store
from tests.properties import examples
from tests.unit.registry.faulty_disk import faulty_disk

NAMES = [Name.parse(text) for text in ("a", "b", "user/c:q4")]
CONTENTS = [b"one", b"two", b"three"]

OPERATIONS = st.tuples(
    st.sampled_from(("install", "copy", "delete", "collect", "reopen")),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(CONTENTS), min_size=1, max_size=2),
    st.none() | st.integers(1, 14),
    st.sampled_from((errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EMFILE, errno.EROFS)),
)
Operation = tuple[str, Name, Name, list[bytes], int | None, int]


def _install(store: Store, name: Name, contents: list[bytes]) -> None:
    layers = []
    for content in (b"{}", *contents):
        with store.blob_writer(Digest.of(content)) as writer:
            writer.write(content)
            digest, size = writer.commit()
        layers.append(Descriptor(MODEL_TYPE if layers else CONFIG_TYPE, digest, size))
    store.put_manifest(name, Manifest(layers[0], tuple(layers[1:])))


def _apply(store: Store, operation: Operation) -> None:
    kind, name, other, contents, _, _ = operation
    if kind == "install":
        _install(store, name, contents)
    elif kind == "copy":
        store.copy(name, other)
    elif kind == "delete":
        store.delete(name)
    elif kind == "collect":
        collect(store, GcOptions(grace_s=0.0))


def _expected(state: dict[Name, Digest], operation: Operation) -> dict[Name, Digest]:
    """The names after the operation, were it done."""
    kind, name, other, contents, _, _ = operation
    after = dict(state)
    if kind == "install":
        parts = [
            Descriptor(MODEL_TYPE if number else CONFIG_TYPE, Digest.of(content), len(content))
            for number, content in enumerate([b"{}", *contents])
        ]
        after[name] = Digest.of(Manifest(parts[0], tuple(parts[1:])).to_bytes())
    elif kind == "copy" and name in state:
        after[other] = state[name]
    elif kind == "delete":
        after.pop(name, None)
    return after


def _state(store: Store) -> dict[Name, Digest]:
    models = store.models()
    assert [model.fault for model in models] == [None] * len(models)
    for model in models:
        for layer in model.manifest.blobs:
            assert len(store.read_blob(layer.digest, layer.size_bytes)) == layer.size_bytes
    return {model.name: model.digest for model in models}


@examples(30)
@given(st.lists(OPERATIONS, max_size=12))
def test_every_operation_is_done_wholly_or_not_at_all(operations: list[Operation]) -> None:
    root = Path(tempfile.mkdtemp())
    store = Store.open(root)
    try:
        for operation in operations:
            before = _state(store)
            wanted = _expected(before, operation)
            done = False
            with faulty_disk(operation[4], operation[5]) as disk:
                try:
                    _apply(store, operation)
                    done = True
                except (StoreError, ModelMissing):
                    pass
            after = _state(store)
            assert after == wanted if done else after in (before, wanted), operation
            if operation[4] is None or disk.calls < operation[4]:
                assert done or before == wanted
            if operation[0] == "reopen":
                store.close()
                store = Store.open(root)
                assert not list((root / "tmp").iterdir())
        collect(store, GcOptions(grace_s=0.0))
        used = {layer.digest for model in store.models() for layer in model.manifest.blobs}
        assert {path.name for path in (root / "blobs").iterdir()} == {d.file_name for d in used}
    finally:
        store.close()
        shutil.rmtree(root)
