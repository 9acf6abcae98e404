from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runner.engine.stop import StopMatcher
from tests.properties import examples

stop_sets = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=5).map(
    lambda stops: tuple(dict.fromkeys(stops))
)


def naive(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """The meaning: the stop that is complete first wins, the longest of those that tie."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


def run(text: str, stops: tuple[str, ...], sizes: list[int]) -> tuple[list[str], str | None]:
    matcher, shown, start = StopMatcher(stops), [], 0
    for size in [*sizes, len(text)]:
        shown.append(matcher.push(text[start : start + size]))
        start += size
        if matcher.matched is not None:
            return shown, matcher.matched
    shown.append(matcher.flush())
    return shown, None


@given(st.text("abc", max_size=30), stop_sets, st.lists(st.integers(1, 4), max_size=30))
@examples(160)
def test_any_split_shows_the_text_before_the_first_stop(
    text: str, stops: tuple[str, ...], sizes: list[int]
) -> None:
    shown, matched = run(text, stops, sizes)
    assert ("".join(shown), matched) == naive(text, stops)


@given(st.text("abcx", max_size=30), stop_sets)
@examples(100)
def test_no_more_is_held_back_than_may_become_a_stop(text: str, stops: tuple[str, ...]) -> None:
    matcher, shown, read = StopMatcher(stops), "", ""
    for character in text:
        shown += matcher.push(character)
        read += character
        if matcher.matched is not None:
            return
        held = read[len(shown) :]
        assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)


def test_a_stop_across_many_pieces_never_leaks() -> None:
    shown, matched = run("Hello<|im_end|>more", ("<|im_end|>",), [1] * 30)
    assert "".join(shown) == "Hello"
    assert matched == "<|im_end|>"


def test_text_without_a_start_of_a_stop_passes_at_once() -> None:
    matcher = StopMatcher(("\n\n", "###"))
    assert matcher.push("some words") == "some words"
    assert matcher.push("line\n") == "line"
    assert matcher.push("next") == "\nnext"


def test_characters_with_a_meaning_in_patterns_are_plain() -> None:
    for stop in ("]", "^", "\\", "-", "[a", "]^-\\"):
        shown, matched = run(f"abc{stop}def", (stop,), [2, 2])
        assert ("".join(shown), matched) == ("abc", stop)


def test_many_stops_and_a_long_text_cost_linear_time() -> None:
    stops = tuple(f"a{'b' * n}{n}" for n in range(64))
    matcher = StopMatcher(stops)
    text = "ab" * 10_000
    shown = "".join(matcher.push(character) for character in text) + matcher.flush()
    assert shown == text
