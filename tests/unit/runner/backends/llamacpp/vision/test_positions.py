from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runner.backends.llamacpp.vision.positions import ImageSpan, SequencePositions

pieces = st.lists(
    st.one_of(st.integers(1, 9), st.tuples(st.integers(1, 9), st.integers(1, 9))), max_size=8
)


@given(pieces)
def test_positions_and_lengths_say_the_same(found: list[int | tuple[int, int]]) -> None:
    positions = SequencePositions()
    length = place = 0
    for piece in found:
        tokens, advance = piece if isinstance(piece, tuple) else (piece, piece)
        if isinstance(piece, tuple):
            positions.append(3, ImageSpan(length, tokens, advance))
            last = place  # all of its tokens are at its first position
        else:
            last = place + piece - 1
        length, place = length + tokens, place + advance
        assert positions.position(3, length) == place
        assert positions.length(3, last) == length


def test_a_sequence_without_images_is_as_it_was() -> None:
    positions = SequencePositions()
    assert not positions
    assert positions.position(0, 7) == 7
    assert positions.length(0, 6) == 7


def test_what_is_cut_is_forgotten() -> None:
    positions = SequencePositions()
    positions.append(0, ImageSpan(2, 6, 3))
    positions.append(0, ImageSpan(10, 4, 2))
    positions.set_spans(1, positions.spans_before(0, 8))
    positions.truncate(0, 10)
    assert positions.image_spans(0) == positions.image_spans(1) == (ImageSpan(2, 6, 3),)
    positions.truncate(0, 2)
    positions.truncate(1, 0)
    assert not positions
