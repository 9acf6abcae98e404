"""Model names: grammar, display, comparison, near names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import InvalidName
from registry.names import Name, nearest
from tests.properties import examples

_LETTERS = "abcXYZ019_"


def _part(extra: str) -> st.SearchStrategy[str]:
    rest = st.text(st.sampled_from(_LETTERS + "-" + extra), max_size=12)
    return st.tuples(st.sampled_from(_LETTERS), rest).map("".join)


NAMES = st.builds(Name, _part(".:"), _part(""), _part("."), _part("."))


@examples(60)
@given(NAMES)
def test_a_printed_name_parses_to_itself(name: Name) -> None:
    assert Name.parse(str(name)) == name
    assert Name.parse(name.short_with_tag).folded == name.folded
    assert Name.from_path("/".join(name.path)) == name


@examples(100)
@given(st.text(max_size=40))
def test_any_text_is_a_name_or_is_refused(text: str) -> None:
    try:
        name = Name.parse(text)
    except InvalidName:
        return
    assert Name.parse(name.short) == name
    assert not any(part in ("", ".", "..") or "/" in part for part in name.path)


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("ember", "ember"),
        ("ember:latest", "ember"),
        ("ember:q4", "ember:q4"),
        ("library/ember", "ember"),
        ("user/m:tag", "user/m:tag"),
        ("hf.co/user/repo:Q4_K_M", "hf.co/user/repo:Q4_K_M"),
        ("localhost:5000/a/b", "localhost:5000/a/b"),
        ("https://registry.ollama.ai/library/m", "m"),
    ],
)
def test_the_shortest_form_leaves_defaults_out(text: str, short: str) -> None:
    assert Name.parse(text).short == short


@pytest.mark.parametrize(
    "text",
    [
        "../../etc/passwd",
        "..",
        ".hidden",
        "a/../b",
        "/etc/passwd",
        "a//b",
        "a:",
        ":tag",
        "a b",
        "a\n",
        "a\x00",
        "ä",
        "a/b/c/d/e",
        "m@sha256:00",
        "x" * 81,
        "m:" + "t" * 81,
        "C:\\model",
        "a:b:c/d",
    ],
)
def test_what_is_no_name_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(InvalidName) as caught:
        Name.parse(text)
    assert repr(text)[1:20] in caught.value.message
    assert "\n" not in caught.value.message
    assert "\x00" not in caught.value.message


def test_a_long_text_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidName) as caught:
        Name.parse("x" * 10_000)
    assert len(caught.value.message) < 200


def test_names_that_differ_in_case_are_folded_to_the_same() -> None:
    assert Name.parse("User/Ember:Q4").folded == Name.parse("user/ember:q4").folded


def test_near_names_are_found_best_first() -> None:
    names = [Name.parse(text) for text in ("ember", "ember:q4", "qwen3", "user/tinyllama")]
    assert nearest("embr", names)[0] == "ember"
    assert nearest("EMBER:q5", names)[0] == "ember:q4"
    assert nearest("tinylama", names) == ("user/tinyllama",)
    assert nearest("zzz", names) == ()
