from __future__ import annotations

from pathlib import Path

import pytest

from registry.digest import Digest
from registry.errors import RemoteMissing
from registry.names import Name
from registry.records import MIN_BLOB_BYTES, BlobOrigin
from registry.store import Store
from runner.library.blob_sources import lost_blob
from tests.unit.registry.store_models import install

CONTENT = bytes(MIN_BLOB_BYTES)


def test_a_blob_is_asked_for_where_it_came_from_and_then_by_the_names_of_its_models(
    tmp_path: Path,
) -> None:
    store = Store.open(tmp_path)
    install(store, "hf.co/user/repo:Q4_0", CONTENT)
    store.keep_origin(Name.parse("hf.co/user/repo:Q4_0"), BlobOrigin("hf.co/user/repo:m.gguf@v1"))
    install(store, "mine", CONTENT, b"other")
    wanted = lost_blob(store, Digest.of(CONTENT))
    store.close()
    assert (wanted.digest, wanted.size_bytes) == (Digest.of(CONTENT), len(CONTENT))
    kinds = [(place.reference.kind.name, place.reference.selector) for place in wanted.sources]
    assert kinds[0] == ("huggingface", "m.gguf")
    assert sorted(kinds[1:], key=str) == [("huggingface", "Q4_0"), ("oci", None)]


def test_an_origin_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    install(store, "mine", CONTENT)
    store.keep_origin(Name.parse("mine"), BlobOrigin("ftp://nowhere"))
    (place,) = lost_blob(store, Digest.of(CONTENT)).sources
    store.close()
    assert place.reference.name == Name.parse("mine")


def test_a_blob_that_no_model_needs_is_not_fetched(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    with pytest.raises(RemoteMissing, match="`hearth gc` removes it"):
        lost_blob(store, Digest.of(b"x"))
    store.close()
