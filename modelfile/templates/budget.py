"""How much a template may use: steps and bytes. Templates are untrusted text.

Every operation of a template that can make something larger, or that takes long, asks here first,
so that a bomb ends with LimitExceeded instead of taking the machine. Work is counted and not
timed: whether a template is refused does not depend on the machine or on what else it does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from jinja2.utils import Namespace

BASE_STEPS = 250_000  # a step takes up to 3 µs on a common core
BASE_VALUE_SIZE = 4 * 1024 * 1024  # of one value, in characters
ELEMENT_SIZE = 16  # an element counts as so many characters: walking over it costs as much
BASE_BYTES = 96 * 1024 * 1024  # made in all by one rendering
MAX_INTEGER_BITS = 1024  # to divide them takes 0.2 µs
_ELEMENTS_PER_STEP = 4
_CHARACTERS_PER_STEP = 256
_SLOW_CHARACTERS_PER_STEP = 32
_SMALL = frozenset((int, float, bool, type(None)))
_VIEWS: Any = (type({}.keys()), type({}.values()), type({}.items()))
_LISTS: Any = (list, tuple, set, frozenset, *_VIEWS)
_COLLECTIONS: Any = (list, tuple, dict, range, *_VIEWS)
_COMPARISONS_PER_STEP = 4096  # of two characters
# The thresholds of CPython's search in stringlib/fastsearch.h: where it is quadratic
_MAX_SLOW_TEXT, _MAX_SLOW_NEEDLE, _LINEAR_TEXT = 2500, 100, 30_000


class LimitExceeded(Exception):
    """A template asked for more than it may use. The message says what."""


class Budget:
    """What is left for one rendering. input_size: of the messages and the tools, for a long
    conversation may take more steps and make longer text."""

    __slots__ = ("_bytes", "_max_steps", "_steps", "value_size")

    def __init__(self, input_size: int = 0) -> None:
        self.value_size = BASE_VALUE_SIZE + 4 * input_size
        self._bytes = BASE_BYTES + 64 * input_size
        self._steps = self._max_steps = BASE_STEPS + input_size // 4

    def steps(self, count: int) -> None:
        """Count statements, iterations or calls. Raises LimitExceeded."""
        self._steps -= count
        if self._steps < 0:
            raise LimitExceeded(f"the template takes more than {self._max_steps} steps")

    def read(self, value: Any) -> Any:
        """Count going through a value once, not through what its elements contain; gives it back.
        Raises LimitExceeded."""
        if isinstance(value, str | bytes):
            self.steps(len(value) // _CHARACTERS_PER_STEP)
        elif isinstance(value, _COLLECTIONS):
            self.steps(len(value) // _ELEMENTS_PER_STEP)
        return value

    def go_through(self, value: Any) -> Any:
        """Count doing something with each element of a value, the characters of a text too; gives
        it back, or what counts while it is gone through where it has no length. Raises
        LimitExceeded."""
        if hasattr(value, "__len__"):
            self.steps(len(value))
            return value
        return self._counted(value) if hasattr(value, "__next__") else value

    def _counted(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self.steps(1)
            yield item

    def search(self, text: str, needle_size: int, *, backwards: bool = False) -> None:
        """Count looking for a text of that length in text: Python may compare each with each
        character, but not for long ones, unless it goes backwards. Raises LimitExceeded."""
        longest = min(needle_size, len(text))
        if not backwards and len(text) >= _MAX_SLOW_TEXT:
            longest = min(longest, _MAX_SLOW_NEEDLE if len(text) < _LINEAR_TEXT else 0)
        self.steps(len(text) * longest // _COMPARISONS_PER_STEP)

    def compare(self, value: Any) -> Any:
        """Count going through a value and all that it contains; gives it back. Raises
        LimitExceeded."""
        if not isinstance(value, _COLLECTIONS) or isinstance(value, range):
            return self.read(value)
        self.steps(self.measure(value) // _CHARACTERS_PER_STEP)
        return value

    def write(self, size: int) -> None:
        """Count that many characters that are made element by element. Raises LimitExceeded."""
        self.steps(size // _SLOW_CHARACTERS_PER_STEP)

    def check_size(self, size: int) -> None:
        """Ask before a value of that many characters is made. Raises
        LimitExceeded."""
        if size > self.value_size:
            raise LimitExceeded(
                f"the template creates a value of {size} characters, at most"
                f" {self.value_size} are allowed"
            )

    def measure(self, value: Any) -> int:
        """The size of value as measure gives it; walking over it counts. Raises LimitExceeded."""
        size, elements = _walk(value, self.value_size)
        self.steps(elements // _ELEMENTS_PER_STEP)
        return size

    def keep(self, value: Any) -> Any:
        """Count a value that was made; gives it back. Raises LimitExceeded."""
        if isinstance(value, str | bytes):
            self.check_size(len(value))
            self._charge(sys.getsizeof(value))
        elif isinstance(value, list | tuple | dict | Namespace):
            self.check_size(self.measure(value))
            self._charge(sys.getsizeof(value))
        elif isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
            raise LimitExceeded(f"the template creates a number of {value.bit_length()} bits")
        return value

    def _charge(self, size_bytes: int) -> None:
        self._bytes -= size_bytes
        if self._bytes < 0:
            raise LimitExceeded("the template creates too much text and too many lists")


def measure(value: Any) -> int:
    """The characters that value has about, when it is written out, ELEMENT_SIZE for every element
    of a list or a dict: a list that holds one text twice counts it twice."""
    return _walk(value, sys.maxsize)[0]


def _walk(value: Any, limit: int) -> tuple[int, int]:
    """What measure gives, and the elements visited: no further than a little beyond limit."""
    total, elements, stack = 0, 0, [value]
    while stack and total <= limit:
        item = stack.pop()
        elements += 1
        if type(item) in _SMALL:
            continue
        if isinstance(item, Namespace):
            item = item._Namespace__attrs
        if isinstance(item, str | bytes):
            total += len(item)
        elif isinstance(item, dict):
            total += ELEMENT_SIZE * (2 * len(item) + 1)
            if total <= limit:
                stack.extend(item.keys())
                stack.extend(item.values())
        elif isinstance(item, _LISTS):
            total += ELEMENT_SIZE * (len(item) + 1)
            if total <= limit:
                stack.extend(item)
    return total, elements
