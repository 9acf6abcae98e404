"""How much a template may use: steps, processor time, bytes. Templates are untrusted text.

Every operation of a template that can make something larger asks here first, so that a bomb
ends with LimitExceeded instead of taking the machine.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from jinja2.utils import Namespace

MAX_STEPS = 1_000_000
MAX_CPU_S = 0.7
BASE_VALUE_SIZE = 4 * 1024 * 1024  # of one value, in characters
ELEMENT_SIZE = 16  # an element counts as so many characters: walking over it costs as much
BASE_BYTES = 96 * 1024 * 1024  # made in all by one rendering
MAX_INTEGER_BITS = 8192
_CLOCK_STEPS = 64
_CLOCK_BYTES = 512 * 1024


class LimitExceeded(Exception):
    """A template asked for more than it may use. The message says what."""


class Budget:
    """What is left for one rendering. input_size: of the messages and the tools, for a long
    conversation may make long text."""

    __slots__ = ("_bytes", "_deadline", "_since_clock", "_steps", "value_size")

    def __init__(self, input_size: int = 0) -> None:
        self.value_size = BASE_VALUE_SIZE + 4 * input_size
        self._bytes = BASE_BYTES + 64 * input_size
        self._steps = MAX_STEPS
        self._deadline = time.thread_time() + MAX_CPU_S
        self._since_clock = 0

    def step(self) -> bool:
        """Count one statement, iteration or call; always True. Raises LimitExceeded."""
        self._steps -= 1
        if self._steps < 0:
            raise LimitExceeded(f"the template takes more than {MAX_STEPS} steps")
        self._since_clock += _CLOCK_BYTES // _CLOCK_STEPS
        if self._since_clock >= _CLOCK_BYTES:
            self._check_clock()
        return True

    def steps(self, count: int) -> None:
        """Count several statements. Raises LimitExceeded."""
        self._steps -= count
        if self._steps < 0:
            raise LimitExceeded(f"the template takes more than {MAX_STEPS} steps")
        self._since_clock += count * (_CLOCK_BYTES // _CLOCK_STEPS)
        if self._since_clock >= _CLOCK_BYTES:
            self._check_clock()

    def check_size(self, size: int) -> None:
        """Ask before a value of that many characters is made. Raises
        LimitExceeded."""
        if size > self.value_size:
            raise LimitExceeded(
                f"the template creates a value of {size} characters, at most"
                f" {self.value_size} are allowed"
            )

    def keep(self, value: Any) -> Any:
        """Count a value that was made; gives it back. Raises LimitExceeded."""
        if isinstance(value, str | bytes):
            self.check_size(len(value))
            self._charge(sys.getsizeof(value))
        elif isinstance(value, list | tuple | dict | Namespace):
            size = measure(value, self.value_size)
            self.check_size(size)
            self._since_clock += size
            self._charge(sys.getsizeof(value))
        elif isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
            raise LimitExceeded(f"the template creates a number of {value.bit_length()} bits")
        return value

    def _charge(self, size_bytes: int) -> None:
        self._bytes -= size_bytes
        if self._bytes < 0:
            raise LimitExceeded("the template creates too much text and too many lists")
        self._since_clock += size_bytes
        if self._since_clock >= _CLOCK_BYTES:
            self._check_clock()

    def _check_clock(self) -> None:
        self._since_clock = 0
        if time.thread_time() > self._deadline:
            raise LimitExceeded(f"the template takes more than {MAX_CPU_S} s")


def measure(value: Any, limit: int) -> int:
    """The characters that value has about, when it is written out, ELEMENT_SIZE for every element
    of a list or a dict: a list that holds one text twice counts it twice. Counts no further
    than a little beyond limit."""
    total, stack = 0, [value]
    while stack and total <= limit:
        item = stack.pop()
        if isinstance(item, Namespace):
            item = item._Namespace__attrs
        if isinstance(item, str | bytes):
            total += len(item)
        elif isinstance(item, dict):
            total += ELEMENT_SIZE * (2 * len(item) + 1)
            if total <= limit:
                stack.extend(item.keys())
                stack.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            total += ELEMENT_SIZE * (len(item) + 1)
            if total <= limit:
                stack.extend(item)
    return total
