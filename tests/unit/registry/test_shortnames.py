from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import InvalidShortNames
from registry.shortnames import ShortNames

TABLE = """
# mine
small = "hf.co/someone/Some-Repository"
"Q.5" = "registry.example.com:5000/team/model"
pinned = "registry.example.com/team/model:v2"
"pinned:old" = "https://example.com/files/old.gguf"
"""


def table(folder: Path, content: str | bytes) -> ShortNames:
    path = folder / "shortnames.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return ShortNames(path)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("small", "hf.co/someone/Some-Repository"),
        ("SMALL:latest", "hf.co/someone/Some-Repository"),
        ("small:Q4_K_M", "hf.co/someone/Some-Repository:Q4_K_M"),
        ("q.5:v1", "registry.example.com:5000/team/model:v1"),
        ("pinned", "registry.example.com/team/model:v2"),
        ("pinned:old", "https://example.com/files/old.gguf"),
        ("pinned:new", "pinned:new"),
        ("other", "other"),
        ("user/small", "user/small"),
        ("hf.co/user/small", "hf.co/user/small"),
        ("small@sha256:00", "small@sha256:00"),
    ],
)
def test_a_bare_name_stands_for_its_place_and_others_for_themselves(
    text: str, place: str, tmp_path: Path
) -> None:
    assert table(tmp_path, TABLE).expand(text) == place


def test_without_a_table_a_name_is_itself(tmp_path: Path) -> None:
    assert ShortNames(tmp_path / "shortnames.toml").expand("small") == "small"


def test_an_edit_counts_at_once(tmp_path: Path) -> None:
    names = table(tmp_path, 'a = "hf.co/u/one"')
    assert names.expand("a") == "hf.co/u/one"
    assert table(tmp_path, 'a = "hf.co/u/two"').path == names.path
    assert names.expand("a") == "hf.co/u/two"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('a = "hf.co/u/m"\nb = \n', "line 2"),
        (b'a = "x"\n\xff = 1\n', "line 2 is not UTF-8"),
        ("a = 5", "'a': expected a string"),
        ('a.5 = "hf.co/u/m"', "'a' is a table; a name with a dot must be quoted"),
        ('a = "b"', "'a': 'b' does not name the source"),
        ('a = "user/b"', "does not name the source"),
        ('a = "hf.co/u"', "'a': invalid model name 'hf.co/u'"),
        ('a = "ftp://h/u/m"', "'a': invalid model name"),
        ('a = "h.example/n/m@sha256:12"', "'a': invalid digest"),
        ('"a/b" = "hf.co/u/m"', "'a/b' is not a short name"),
        ('"a b" = "hf.co/u/m"', "invalid model name 'a b'"),
        ('a = "hf.co/u/m"\nA = "hf.co/u/n"', "'A' occurs twice"),
        ("x = " + "[" * 100_000, "shortnames"),
        ("#" * 1_048_577, "longer than"),
    ],
)
def test_a_fault_names_the_file_and_the_entry_or_line(
    content: str | bytes, words: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidShortNames) as caught:
        table(tmp_path, content).expand("a")
    assert caught.value.message.startswith("shortnames.toml: ")
    assert words in caught.value.message


def test_a_table_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "shortnames.toml").mkdir()
    with pytest.raises(InvalidShortNames, match="cannot be read"):
        ShortNames(tmp_path / "shortnames.toml").expand("a")


@given(content=st.binary(max_size=200), text=st.text(max_size=20))
def test_any_bytes_give_the_text_or_a_fault(
    content: bytes, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = table(tmp_path_factory.getbasetemp(), content)
    with contextlib.suppress(InvalidShortNames):
        assert names.expand(text) == text
