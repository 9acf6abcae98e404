"""The file of API keys: what is kept, what is not, and what a broken one does."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from runner.errors import Conflict, InvalidRequest, KeyNotFound, StorageFailed
from runner.server.keys import PREFIX, KeyRing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "keys.json"


def test_a_key_is_found_by_its_text_also_after_a_restart(path: Path) -> None:
    ring = KeyRing(path)
    assert not ring
    text = ring.add("laptop", ("inference", "pull"))
    assert text.startswith(PREFIX)
    for each in (ring, KeyRing(path)):
        found = each.find(text)
        assert found is not None
        assert (found.name, found.scopes) == ("laptop", ("inference", "pull"))
        assert each.find(text[:-1]) is None


def test_the_text_of_a_key_is_nowhere_in_the_file_and_only_the_owner_reads_it(path: Path) -> None:
    text = KeyRing(path).add("laptop", ("inference",))
    assert text.removeprefix(PREFIX) not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_removed_key_opens_nothing_any_more(path: Path) -> None:
    ring = KeyRing(path)
    text = ring.add("old", ("admin",))
    ring.remove("old", keep_one=False)
    assert ring.find(text) is None
    assert not KeyRing(path)
    with pytest.raises(KeyNotFound, match="there is no key 'old'; there are: none"):
        ring.remove("old", keep_one=False)


def test_the_last_key_is_kept_where_one_has_to_be(path: Path) -> None:
    ring = KeyRing(path)
    ring.add("one", ("inference",))
    ring.add("two", ("inference",))
    ring.remove("one", keep_one=True)
    with pytest.raises(Conflict, match="'two' is the last key"):
        ring.remove("two", keep_one=True)
    assert [key.name for key in KeyRing(path).keys] == ["two"]


def test_admin_opens_everything_and_the_others_their_own(path: Path) -> None:
    ring = KeyRing(path)
    admin, reader = (ring.find(ring.add(n, (s,))) for n, s in (("a", "admin"), ("b", "inference")))
    assert admin is not None
    assert reader is not None
    assert admin.may("pull")
    assert reader.may("inference")
    assert not reader.may("pull")


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 65, "ä"])
def test_names_that_are_none_are_refused(path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="not a valid key name"):
        KeyRing(path).add(name, ("inference",))


def test_a_name_is_given_once(path: Path) -> None:
    ring = KeyRing(path)
    text = ring.add("x", ("inference",))
    with pytest.raises(Conflict, match="hearth key rm x"):
        ring.add("x", ("inference",))
    assert ring.find(text) is not None


_KEY = {"name": "x", "scopes": ["pull"], "sha256": "0" * 64, "created_at": "2026"}


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "{}", "null", "0", '"x"', "[1]", "[[]]", '[{"name": "x"}]', "[" * 100_000,
        *(
            json.dumps(keys)
            for keys in (
                {"x": _KEY}, [_KEY, _KEY], [{**_KEY, "more": 1}], [{**_KEY, "name": 1}],
                [{**_KEY, "name": "../x"}], [{**_KEY, "scopes": "admin"}],
                [{**_KEY, "scopes": []}], [{**_KEY, "scopes": ["root"]}],
                [{**_KEY, "scopes": [["pull"]]}], [{**_KEY, "sha256": "0"}],
                [{**_KEY, "sha256": None}], [{**_KEY, "created_at": 1}],
            )
        ),
    ],
)  # fmt: skip
def test_a_broken_file_opens_nothing(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(StorageFailed, match="is not a valid key file"):
        KeyRing(path)


def test_a_folder_that_cannot_be_written_loses_no_key(path: Path) -> None:
    ring = KeyRing(path)
    ring.add("x", ("inference",))
    path.rename(path.with_name("kept"))
    path.mkdir()
    with pytest.raises(StorageFailed, match="cannot be written"):
        ring.add("y", ("inference",))
    assert [key.name for key in ring.keys] == ["x"]
