"""The positions of tokens in sequences with images, for models where an image moves what follows
by another number of positions than it has tokens (M-RoPE: by the larger of its sides).

A sequence without images is not in here: its tokens and positions are the same. Knows no cache.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """An image in a sequence: where its tokens begin, how many they are, and by how many
    positions they move on what follows."""

    start: int
    tokens: int
    advance: int


ImageSpans = tuple[ImageSpan, ...]  # in order


class SequencePositions:
    """The images of all sequences. Lengths never end inside of one."""

    def __init__(self) -> None:
        self._image_spans: dict[int, ImageSpans] = {}

    def __bool__(self) -> bool:
        return bool(self._image_spans)

    def append(self, sequence: int, image: ImageSpan) -> None:
        """The image is at the end of the sequence now."""
        self._image_spans[sequence] = (*self.image_spans(sequence), image)

    def image_spans(self, sequence: int) -> ImageSpans:
        """The images of the sequence."""
        return self._image_spans.get(sequence, ())

    def set_spans(self, sequence: int, image_spans: ImageSpans) -> None:
        """The sequence has these images."""
        if image_spans:
            self._image_spans[sequence] = image_spans
        else:
            self._image_spans.pop(sequence, None)

    def position(self, sequence: int, length: int) -> int:
        """The position of the token after the first length ones."""
        images = self.image_spans(sequence)
        return length + sum(x.advance - x.tokens for x in images if x.start < length)

    def length(self, sequence: int, last: int) -> int:
        """The number of tokens, where last is the last position in the cache. All tokens of an
        image are at its first one."""
        images = self.image_spans(sequence)
        if not images:
            return last + 1
        end = images[-1]
        if last == self.position(sequence, end.start):
            return end.start + end.tokens
        return last + 1 + sum(x.tokens - x.advance for x in images)

    def truncate(self, sequence: int, length: int) -> None:
        """The sequence has its first length tokens only."""
        if sequence in self._image_spans:
            self.set_spans(sequence, self.spans_before(sequence, length))

    def spans_before(self, sequence: int, length: int) -> ImageSpans:
        """The images within the sequence's first length tokens."""
        return tuple(x for x in self.image_spans(sequence) if x.start < length)

    def clear(self) -> None:
        """Forget all sequences."""
        self._image_spans.clear()
